-- The credit family: token_bucket, gcra, leaky_bucket. The twin of credit.go.
--
-- One hit is p credits and one tick brings n of them, so nothing is ever rounded. level is the credits in hand plus d*p:
-- 0 is as deep in debt as the limit allows, full is a full bucket. s is {level, t, p, tau, d}, empty if absent. Where most
-- decisions pass, what credit.go calls is spelt out: calls are dear in Lua.

-- valid_credit reports whether some limit of the family can have written s: that of charge c can, if it has its terms.
local function valid_credit(s, c)
  local level, t, p, tau, d = s[1], s[2], s[3], s[4], s[5]
  return d and level >= 0 and level <= MAX_PRODUCT and t >= 0 and t <= MAX_TIME and
    (p == c.p and tau == c.tau and d == c.d or
    p >= 1 and tau >= 1 and p <= floor(MAX_PERIOD / tau) and d >= 0 and d <= floor(MAX_PRODUCT / p))
end

-- credit_wait returns the wait at now until so many credits have come since t, NEVER if that is after the end of time.
local function credit_wait(missing, n, t, tau, now)
  if missing <= 0 then
    return 0
  end
  local ticks = floor((missing + n - 1) / n)
  if ticks > floor((MAX_TIME - t) / tau) then
    return NEVER
  end
  return t + ticks * tau - now
end

-- until_full is the wait at now until a bucket is full, cut at the end of time.
local function until_full(missing, n, t, tau, now)
  local wait = credit_wait(missing, n, t, tau, now)
  if wait == NEVER then
    return MAX_TIME - now
  end
  return wait
end

local function take_credit(s, now, c, mode, before)
  local n, b, d, p, tau = c.n, c.b, c.d, c.p, c.tau
  local hits = c.hits
  local full = (b + d) * p

  -- The bucket now, under this limit: an absent one is full.
  local level, t = full, now
  local rebased = false
  if valid_credit(s, c) then
    level, t = s[1], s[2]
    local p0, tau0, d0 = s[3], s[4], s[5]
    if p0 ~= p or tau0 ~= tau or d0 ~= d then -- another limit's: whole hits in hand are kept
      level = (max(-d, min(floor(level / p0) - d0, b)) + d) * p
    end
    if level > full then
      level = full
    end
    if t > now + BACKSTEP then
      t = now
      rebased = true
    end
    local ticks = 0
    if now > t then
      ticks = floor((now - t) / tau)
    end
    if ticks >= floor((full - level + n - 1) / n) then
      level = full
      t = max(t, now)
    else
      level = level + ticks * n
      t = t + ticks * tau
    end
  end

  -- Does it fit? whole hits in hand may be negative: a debt.
  local whole = floor(level / p) - d
  local need = need_of(c, before)
  local allowed = hits < 0 or need <= b and whole >= need
  local delay, max_delay = 0, 0
  if c.queue > 0 and hits >= 0 then -- a queue: what is missing stands before this charge
    delay = until_full(full - level, n, t, tau, now)
    max_delay = min(c.max_delay, c.queue)
    allowed = allowed and delay <= max_delay
  end

  -- Book it.
  local granted = 0
  if mode == LOOK or hits == 0 then
    granted = 0
  elseif hits < 0 then
    granted = -min(-hits, ceil(full - level, p))
  elseif allowed then
    granted = min(hits, whole)
  elseif mode == REPORT then
    granted = min(hits, whole + d)
  elseif mode == COUNT then
    granted = max(0, min(hits, whole))
  end
  if granted ~= 0 then
    local was = level
    level = min(level - granted * p, full)
    if full - max(was, level) < n then
      -- Less than a tick from full: what has passed of the tick is past, or the next would bring it on top of the burst.
      t = max(t, now)
    end
  end

  -- Answer.
  local changed = granted ~= 0 or rebased
  local remaining = floor(level / p) - d
  if remaining < 0 then
    remaining = 0
  end
  local reset_after = credit_wait(full - level, n, t, tau, now)
  if reset_after == NEVER then
    reset_after = MAX_TIME - now
  end
  local retry_after = 0
  if not allowed and need > b then
    retry_after = NEVER
  elseif not allowed then
    retry_after = credit_wait((need + d) * p - level, n, t, tau, now)
    if retry_after ~= NEVER then
      retry_after = max(1, retry_after)
      if c.queue > 0 then
        retry_after = max(retry_after, reset_after - max_delay)
      end
    end
  end
  local tick, ttl = 0, 0
  if granted ~= 0 then
    tick = now + 1
  end
  if granted <= 0 or not allowed then
    delay = 0
  end
  if changed then
    if level == full then
      s[1], s[2], s[3], s[4], s[5] = nil, nil, nil, nil, nil
    else
      s[1], s[2], s[3], s[4], s[5] = level, t, p, tau, d
      ttl = max(1, reset_after)
    end
  end
  return allowed, granted, remaining, retry_after, reset_after, delay, tick, changed, ttl
end
