-- The log family: sliding_log. The twin of log.go.
--
-- Every hit younger than a period p (in microseconds) is remembered, hits of one instant in one entry, the oldest first.
-- s is {time1, hits1, time2, hits2, ...}, empty if absent.

local function valid_log(s)
  local last = -1
  for i = 1, #s, 2 do
    local time, hits = s[i], s[i + 1]
    if time <= last or time > MAX_TIME or hits < 1 or hits > MAX_COST then
      return false
    end
    last = time
  end
  return true
end

-- rebase_log makes one entry at now of all that are not older.
local function rebase_log(s, now)
  local hits = 0
  local k = #s
  while k > 0 and s[k - 1] >= now do
    hits = hits + s[k]
    s[k - 1], s[k] = nil, nil
    k = k - 2
  end
  s[k + 1], s[k + 2] = now, min(hits, MAX_COST)
end

-- give_back_log takes up to hits from the entry of the given instant, or if that is negative from the oldest on, so that
-- what is left is remembered longest. It returns the hits taken; it may leave entries of 0 hits to trim_log.
local function give_back_log(s, first, hits, instant)
  local left = hits
  for i = first, #s, 2 do
    if left == 0 then
      break
    end
    if instant < 0 or s[i] == instant then
      local h = min(left, s[i + 1])
      s[i + 1] = s[i + 1] - h
      left = left - h
    end
  end
  return hits - left
end

-- trim_log drops the entries before first and those of 0 hits.
local function trim_log(s, first)
  local k = 0
  local size = #s
  for i = first, size, 2 do
    if s[i + 1] > 0 then
      s[k + 1], s[k + 2] = s[i], s[i + 1]
      k = k + 2
    end
  end
  for i = size, k + 1, -1 do
    s[i] = nil
  end
end

-- append_log adds hits at an instant that is not before the newest entry.
local function append_log(s, at, hits)
  local k = #s
  if k > 0 and s[k - 1] == at then
    s[k] = s[k] + hits
    return
  end
  s[k + 1], s[k + 2] = at, hits
end

local function take_log(s, now, c, mode, before)
  local n, d, p = c.n, c.d, c.p
  local hits = c.hits
  local top = n -- what COUNT counts to: one past the limit tells "over" from "at"
  if c.envoy then
    top = n + 1
  end
  if not valid_log(s) then
    for i = #s, 1, -1 do
      s[i] = nil
    end
  end

  -- A clock that stepped back a little stands still at the newest entry; after a larger step, entries from the future
  -- are taken for entries of now.
  local at = now
  local rebased = false
  if #s > 0 and s[#s - 1] > now then
    if s[#s - 1] <= now + BACKSTEP then
      at = s[#s - 1]
    else
      rebase_log(s, now)
      rebased = true
    end
  end

  -- What is younger than a period counts.
  local first, used = 1, 0
  for i = #s - 1, 1, -2 do
    if at - s[i] >= p then
      first = i + 2
      break
    end
    used = used + s[i + 1]
  end

  -- Does it fit?
  local need = need_of(c, before)
  local allowed = hits < 0 or used + need <= n

  -- Book it.
  local granted = 0
  if mode == LOOK or hits == 0 then
    granted = 0
  elseif hits < 0 then
    granted = -give_back_log(s, first, -hits, c.tick - 1)
  elseif allowed then
    granted = min(hits, n - used)
  elseif mode == REPORT then
    granted = max(0, min(hits, n + d - used))
  elseif mode == COUNT then
    granted = max(0, min(hits, top - used))
  end
  used = used + granted
  local changed = granted ~= 0 or rebased
  if changed then
    trim_log(s, first)
    first = 1
    if granted > 0 then
      append_log(s, at, granted)
    end
  end

  -- Answer.
  local remaining = max(0, n - used)
  local reset_after = 0
  if #s > first then
    reset_after = max(0, min(s[#s - 1] + p, MAX_TIME) - now)
  end
  local room = n - need -- what may be used when it fits
  local retry_after = 0
  if not allowed then
    retry_after = NEVER
    if room >= 0 then
      local again = now
      local i, left = first, used
      while left > room do -- used ends at 0
        left = left - s[i + 1]
        again = s[i] + p
        i = i + 2
      end
      if again <= MAX_TIME then
        retry_after = max(1, again - now)
      end
    end
  end
  local tick, ttl = 0, 0
  if granted ~= 0 then
    tick = at + 1
  end
  if changed and #s > 0 then
    ttl = max(1, reset_after)
  end
  return allowed, granted, remaining, retry_after, reset_after, 0, tick, changed, ttl
end
