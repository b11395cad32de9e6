-- The window family: fixed_window and sliding_window. The twin of window.go.
--
-- Time is cut into windows of p ticks. cur counts the hits of the window that began at start, prev those of the one
-- before; a sliding window weighs prev by the share of it that the last p ticks still reach. s is
-- {cur, prev, p, tau, start}, empty if absent.

local function valid_window(s)
  local cur, prev, p, tau, start = s[1], s[2], s[3], s[4], s[5]
  -- Twice the longest period, since ten calendar years have leap days.
  return start and p >= 1 and tau >= 1 and p <= floor(2 * MAX_PERIOD / tau) and
    cur >= 0 and cur <= MAX_COST and
    prev >= 0 and prev <= floor(2 * MAX_PRODUCT / p) - 1 and prev <= MAX_COST and
    start >= 0 and start <= MAX_TIME
end

local function take_window(s, now, c, mode, before)
  local n, d, p, tau = c.n, c.d, c.p, c.tau
  local hits = c.hits
  local top = n -- what COUNT counts to: one past the limit tells "over" from "at"
  if c.envoy then
    top = n + 1
  end
  local most = max(n + d, top)

  -- The window of now. A clock that stepped back a little stands still at the start of the window it had reached.
  local valid = valid_window(s)
  local start0 = s[5]
  local rebased = valid and start0 > now + BACKSTEP
  local at = now
  if valid and not rebased then
    at = max(now, start0)
  end
  local start = floor(at / (p * tau)) * (p * tau)
  if c.around then
    local around = c.around
    local i = 1
    while i < 3 and at >= around[i + 1] do -- outside of all: the nearest
      i = i + 1
    end
    start, p = around[i], around[i + 1] - around[i]
  end

  -- The counts now, under this limit.
  local cur, prev = 0, 0
  if valid then
    local cur0, prev0, p0, tau0 = s[1], s[2], s[3], s[4]
    if rebased then
      start0 = start
    end
    local end0 = start0 + p0 * tau0
    if start0 == start and p0 == p and tau0 == tau then
      cur, prev = cur0, prev0
    elseif end0 > start then -- another limit's, still open when this window began: all that it uses now counts
      cur = cur0 + ceil(prev0 * max(0, p0 - floor(max(0, at - start0) / tau0)), p0)
    elseif end0 > start - p * tau then
      prev = cur0
    end
    cur, prev = min(cur, most), min(prev, most)
  end
  local weight = 0
  if c.sliding then
    weight = ceil(prev * (p - floor(max(0, at - start) / tau)), p)
  else
    prev = 0
  end
  local used = cur + weight

  -- Does it fit?
  local need = need_of(c, before)
  local allowed = hits < 0 or used + need <= n

  -- Book it.
  local granted = 0
  if mode == LOOK or hits == 0 then
    granted = 0
  elseif hits < 0 then
    if c.tick == 0 or c.tick == start + 1 then
      granted = -min(-hits, cur)
    end
  elseif allowed then
    granted = min(hits, n - used)
  elseif mode == REPORT then
    granted = max(0, min(hits, n + d - used))
  elseif mode == COUNT then
    granted = max(0, min(hits, top - used))
  end
  cur = cur + granted
  used = used + granted

  -- Answer.
  local changed = granted ~= 0 or rebased
  local remaining = max(0, n - used)
  local end_ = start + p * tau
  local reset_after = max(0, min(end_, MAX_TIME) - now)
  local room = n - need -- what may be used when it fits
  local retry_after = 0
  if not allowed then
    retry_after = NEVER
    if room >= 0 then
      local again = end_ -- fixed: the next window is empty
      if c.sliding then
        if cur <= room then -- prev wears off in this window
          again = start + (p - floor((room - cur) * p / max(1, prev))) * tau
        else -- cur wears off in the next one
          again = end_ + (p - floor(room * p / cur)) * tau
        end
      end
      if again <= MAX_TIME then
        retry_after = max(1, again - now)
      end
    end
  end
  local tick, ttl = 0, 0
  if granted ~= 0 then
    tick = start + 1
  end
  if changed then
    if cur == 0 and prev == 0 then
      s[1], s[2], s[3], s[4], s[5] = nil, nil, nil, nil, nil
    else
      s[1], s[2], s[3], s[4], s[5] = cur, prev, p, tau, start
      local last = end_ -- when the last window that matters ends
      if c.sliding and cur > 0 then
        last = end_ + p * tau
      end
      ttl = max(1, min(last, MAX_TIME) - now)
    end
  end
  return allowed, granted, remaining, retry_after, reset_after, 0, tick, changed, ttl
end
