-- Takes the charges of one or more requests in one step. It follows the arithmetic (bucket.Lua) in one script; the law of
-- what a request does is "One request" in bucket/SPEC.md.
--
-- KEYS holds the key of every charge, request after request; ARGV one packed string a request (request.go packs it). The
-- reply is a flat list of integers, seven a charge. Nothing that is stored can make this script err: what cannot be read
-- reads as absent.

local read, write = struct.unpack, struct.pack
local call = redis.call

local CREDIT, WINDOW, LOG = 1, 2, 3 -- families, and the first byte of what is stored
local ENFORCE, NONE = 0, 1 -- votes; larger ones are quota groups
local COUNT_BOOK = 2 -- BookWhenRefuses
local WHOLE, LOOK_ONLY = 0, 1 -- phases; the third books as for a request refused elsewhere

-- Ticks are powers of ten of microseconds, and travel and are stored as the exponent: at most 14, as a period is at most
-- ten years. A larger one is none of ours: 0.
local function tick_of(exponent)
  if exponent > 14 then
    return 0
  end
  local tau = 1
  for _ = 1, exponent do
    tau = tau * 10
  end
  return tau
end

local function exponent_of(tau)
  local exponent = 0
  while tau > 1 do
    tau = floor(tau / 10)
    exponent = exponent + 1
  end
  return exponent
end

-- What is stored: a byte for the family, then integers, the low byte first: seven bytes hold any number below 2^53.
-- A credit bucket is 27 bytes, a window 26, a log 12 an entry.
local CREDIT_FORMAT, CREDIT_SIZE = '<BI7I7I7BI4', 27
local WINDOW_FORMAT, WINDOW_SIZE = '<BI5I5I7BI7', 26
local ENTRY_FORMAT, ENTRY_SIZE = '<I7I5', 12
local ENTRIES = 100 -- of a log, converted at once

local function decode(family, value)
  if not value or string.byte(value) ~= family then
    return {}
  end
  if family == CREDIT then
    if #value == CREDIT_SIZE then
      local _, level, t, p, tau, d = read(CREDIT_FORMAT, value)
      return {level, t, p, tick_of(tau), d}
    end
  elseif family == WINDOW then
    if #value == WINDOW_SIZE then
      local _, cur, prev, p, tau, start = read(WINDOW_FORMAT, value)
      return {cur, prev, p, tick_of(tau), start}
    end
  elseif (#value - 1) % ENTRY_SIZE == 0 then
    local s, k = {}, 0
    for at = 2, #value, ENTRIES * ENTRY_SIZE do
      local entries = min(ENTRIES, floor((#value + 1 - at) / ENTRY_SIZE))
      local numbers = {read(string.rep(ENTRY_FORMAT, entries), value, at)}
      for i = 1, entries * 2 do -- unpack adds a position
        s[k + i] = numbers[i]
      end
      k = k + entries * 2
    end
    return s
  end
  return {}
end

local function encode(family, s)
  if family == CREDIT then
    return write(CREDIT_FORMAT, CREDIT, s[1], s[2], s[3], exponent_of(s[4]), s[5])
  elseif family == WINDOW then
    return write(WINDOW_FORMAT, WINDOW, s[1], s[2], s[3], exponent_of(s[4]), s[5])
  end
  local parts = {string.char(LOG)}
  for i = 1, #s, ENTRIES * 2 do
    local last = min(i + ENTRIES * 2 - 1, #s)
    parts[#parts + 1] = write(string.rep(ENTRY_FORMAT, floor((last + 1 - i) / 2)), unpack(s, i, last))
  end
  return table.concat(parts)
end

local function copy(family, s)
  if family ~= LOG then
    return {s[1], s[2], s[3], s[4], s[5]}
  end
  local c = {}
  for i = 1, #s do
    c[i] = s[i]
  end
  return c
end

-- Each distinct key is read once and written at most once, whatever the requests: cells holds what was read, and then the
-- bucket {family, s, changed, ttl}.
local cells = {}
do
  local keys = {}
  for i = 1, #KEYS do
    if cells[KEYS[i]] == nil then
      cells[KEYS[i]] = false
      keys[#keys + 1] = KEYS[i]
    end
  end
  if #keys > 0 then
    local values = call('MGET', unpack(keys)) -- unlike GET, it reads a key of another type as absent
    for i = 1, #keys do
      cells[keys[i]] = {value = values[i]}
    end
  end
end

-- bucket returns the cell of charge c. No key is of two families; if one were, it would be absent to the second.
local function bucket(c)
  local cell = cells[c.key]
  if cell.family ~= c.family then
    cell.family, cell.s = c.family, decode(c.family, cell.value)
    cell.value = nil
  end
  return cell
end

local CHARGE_FORMAT = '<BBBi7I7i7I7I4I4I4I7BI7BBB'
local AROUND_FORMAT = '<I7I7I7I7'

local function parse_charge(key, request, at)
  local vote, book, family, hits, at_least, tick, max_delay, n, b, d, p, tau, queue, sliding, envoy, calendar, next =
    read(CHARGE_FORMAT, request, at)
  local c = {
    key = key, vote = vote, book = book, family = family,
    hits = hits, at_least = at_least, tick = tick, max_delay = max_delay,
    n = n, b = b, d = d, p = p, tau = tick_of(tau), queue = queue,
    sliding = sliding == 1, envoy = envoy == 1, around = nil,
  }
  if calendar == 1 then
    local w0, w1, w2, w3
    w0, w1, w2, w3, next = read(AROUND_FORMAT, request, next)
    c.around = {w0, w1, w2, w3}
  end
  return c, next
end

local function take(s, now, c, mode, before)
  if c.n == 0 then
    return false, 0, 0, NEVER, 0, 0, 0, false, 0
  elseif c.family == CREDIT then
    return take_credit(s, now, c, mode, before)
  elseif c.family == WINDOW then
    return take_window(s, now, c, mode, before)
  end
  return take_log(s, now, c, mode, before)
end

local reply, size = {}, 0

local function answer(allowed, granted, remaining, retry_after, reset_after, delay, tick)
  reply[size + 1] = allowed and 1 or 0
  reply[size + 2] = granted
  reply[size + 3] = remaining
  reply[size + 4] = retry_after
  reply[size + 5] = reset_after
  reply[size + 6] = delay
  reply[size + 7] = tick
  size = size + 7
end

-- take_one is take_many for the common request of one charge: refused, it would book on the stored state just what it
-- booked when asked.
local function take_one(now, c)
  local cell = bucket(c)
  local allowed, granted, remaining, retry_after, reset_after, delay, tick, changed, ttl =
    take(cell.s, now, c, c.book + 1, 0)
  if changed then
    cell.changed, cell.ttl = true, ttl
  end
  answer(allowed, granted, remaining, retry_after, reset_after, delay, tick)
end

local function take_many(now, charges, phase)
  local start = size

  -- Ask, on copies.
  local copies, took = {}, {} -- by key
  local room, asked_groups = {}, false -- quota groups of which a charge is allowed
  local any_changed = false
  for i = 1, #charges do
    local c = charges[i]
    local key = c.key
    local cell = bucket(c)
    local w = copies[key]
    if not w then
      w = {s = copy(c.family, cell.s), changed = false, ttl = 0}
      copies[key], took[key] = w, 0
    end
    local allowed, granted, remaining, retry_after, reset_after, delay, tick, changed, ttl =
      take(w.s, now, c, c.book + 1, 0)
    if changed then
      w.changed, w.ttl = true, ttl
      any_changed = true
    end
    c.allowed, c.before = allowed, took[key]
    took[key] = max(0, took[key] + granted)
    if c.vote > NONE then
      room[c.vote] = room[c.vote] or allowed
    end
    answer(allowed, granted, remaining, retry_after, reset_after, delay, tick)
  end

  -- Vote.
  local refused = phase ~= WHOLE
  local again = refused or any_changed
  for i = 1, #charges do
    local c = charges[i]
    c.refuses = not c.allowed and (c.vote == ENFORCE or c.vote > NONE and not room[c.vote])
    if c.refuses then
      refused = true
      again = again or c.book == COUNT_BOOK
    end
  end

  if not refused then
    for key, w in pairs(copies) do
      if w.changed then
        local cell = cells[key]
        cell.s, cell.changed, cell.ttl = w.s, true, w.ttl
      end
    end
  elseif again then
    -- Refused: book on the stored states what is booked even so.
    size = start
    local booked = {}
    for i = 1, #charges do
      local c = charges[i]
      local key = c.key
      local cell = bucket(c)
      local mode = LOOK
      if phase ~= LOOK_ONLY and (c.book + 1 == REPORT or c.book + 1 == COUNT and c.refuses) then
        mode = c.book + 1
      end
      local _, granted, remaining, retry_after, reset_after, _, tick, changed, ttl =
        take(cell.s, now, c, mode, max(0, c.before - (booked[key] or 0)))
      if changed then
        cell.changed, cell.ttl = true, ttl
      end
      booked[key] = (booked[key] or 0) + granted
      if c.allowed then
        retry_after = 0
      elseif retry_after ~= NEVER then
        retry_after = max(1, retry_after)
      end
      answer(c.allowed, granted, remaining, retry_after, reset_after, 0, tick)
    end
  end
end

local clock -- of Redis, read once
local spare = 0 -- milliseconds a state outlives its use

local key = 0
for r = 1, #ARGV do
  local now, phase, many, at
  now, spare, phase, many, at = read('<I7I7BI2', ARGV[r])
  if now == 0 then
    if not clock then
      local time = call('TIME')
      clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
    end
    now = clock
  end
  now = min(now, MAX_TIME)
  if many == 1 and phase == WHOLE then
    key = key + 1
    take_one(now, (parse_charge(KEYS[key], ARGV[r], at)))
  else
    local charges = {}
    for i = 1, many do
      key = key + 1
      charges[i], at = parse_charge(KEYS[key], ARGV[r], at)
    end
    take_many(now, charges, phase)
  end
end

for key, cell in pairs(cells) do
  if cell.changed then
    if cell.s[1] == nil then
      call('DEL', key)
    else
      local px = string.format('%d', ceil(cell.ttl, 1000) + spare)
      call('SET', key, encode(cell.family, cell.s), 'PX', px)
    end
  end
end

return reply
