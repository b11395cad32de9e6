-- The buckets of a call: what is stored, read once and written at most once, whatever the requests. Nothing that is stored
-- can make the script err: what cannot be read reads as absent.

local read, write, byte = struct.unpack, struct.pack, string.byte
local call = redis.call

local CREDIT, WINDOW, LOG = 1, 2, 3 -- families, and the first byte of what is stored

-- What is stored: a byte for the family, then integers, the low byte first: seven bytes hold any number below 2^53.
-- A credit bucket is 27 bytes, a window 26, a log 12 an entry.
local CREDIT_FORMAT, CREDIT_SIZE = '<BI7I7I7BI4', 27
local CREDIT_LIMIT, CREDIT_HEAD = '<I7BI4', '<BI7I7c12' -- the same, cut where what is the limit's begins
local WINDOW_FORMAT, WINDOW_SIZE = '<BI5I5I7BI7', 26
local ENTRY_FORMAT, ENTRY_SIZE = '<I7I5', 12
local ENTRIES = 100 -- of a log, converted at once

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

local function decode_log(value)
  local s, k = {}, 0
  if not value or byte(value) ~= LOG or (#value - 1) % ENTRY_SIZE ~= 0 then
    return s
  end
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

local function encode_log(s)
  local parts = {string.char(LOG)}
  for i = 1, #s, ENTRIES * 2 do
    local last = min(i + ENTRIES * 2 - 1, #s)
    parts[#parts + 1] = write(string.rep(ENTRY_FORMAT, floor((last + 1 - i) / 2)), unpack(s, i, last))
  end
  return table.concat(parts)
end

local function copy_log(s)
  local c = {}
  for i = 1, #s do
    c[i] = s[i]
  end
  return c
end

-- The buckets, by place in KEYS. Each is read once and written at most once, whatever the requests: values holds what is
-- stored, false if nothing, and then what is to be; logs the logs among them once they are unpacked, which is dear; ttls
-- the time to live of those that are to be written.
local values, logs, ttls = {}, {}, {}
if #KEYS > 0 then
  values = call('MGET', unpack(KEYS)) -- unlike GET, it reads a key of another type as absent
end

local words = {0, 0, 0, 0, 0} -- the state of the credit bucket or window at hand

-- load returns the state of a bucket for charge c. It is the caller's until the next load, but for a log, which is kept.
-- No key is of two families; if one were, it would be absent to the second.
local function load(c, place)
  local family, s = c.family, words
  if family == LOG then
    s = logs[place]
    if not s then
      s = decode_log(values[place])
      logs[place] = s
    end
    return s
  end
  local value = values[place]
  local stored, exponent
  if value and family == CREDIT and #value == CREDIT_SIZE then
    stored, s[1], s[2], s[3], exponent, s[5] = read(CREDIT_FORMAT, value)
  elseif value and family == WINDOW and #value == WINDOW_SIZE then
    stored, s[1], s[2], s[3], exponent, s[5] = read(WINDOW_FORMAT, value)
  end
  if stored ~= family then
    s[1], s[2], s[3], s[4], s[5] = nil, nil, nil, nil, nil
  elseif exponent == c.exponent then
    s[4] = c.tau
  else
    s[4] = tick_of(exponent)
  end
  return s
end

-- store keeps state s, which charge c has changed: it is in the terms of c's limit.
local function store(c, place, s, ttl)
  ttls[place] = ttl
  if c.family == LOG then
    logs[place] = s
  elseif s[1] == nil then
    values[place] = false
  elseif c.family == CREDIT then
    values[place] = write(CREDIT_HEAD, CREDIT, s[1], s[2], c.limit)
  else
    values[place] = write(WINDOW_FORMAT, WINDOW, s[1], s[2], s[3], c.exponent, s[5])
  end
end

-- save writes what has changed; it is to outlive its use by so many milliseconds.
local function save(spare)
  for place = 1, #KEYS do
    local ttl = ttls[place]
    if ttl then
      local s, value = logs[place], values[place]
      if s then
        value = s[1] ~= nil and encode_log(s)
      end
      if value then
        call('SET', KEYS[place], value, 'PX', string.format('%d', ceil(ttl, 1000) + spare))
      else
        call('DEL', KEYS[place])
      end
    end
  end
end
