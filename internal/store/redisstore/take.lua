-- Takes the charges of one or more requests in one step. It follows the arithmetic (bucket.Lua) and buckets.lua in one
-- script; the law of what a request does is "One request" in bucket/SPEC.md.
--
-- Requests that come together are mostly alike but for their keys, and what is alike is sent and parsed once. KEYS holds
-- each key once. ARGV[1] has a byte a request: which of the texts from ARGV[3] on it is, counted from one (errand.go packs
-- a call, encode.go the texts). ARGV[2] has a byte a charge, request after request: which of KEYS it is on; it is empty if that is KEYS in
-- order. The reply is a packed string, ANSWER_FORMAT a charge.

local ENFORCE, NONE = 0, 1 -- votes; larger ones are quota groups
local WHOLE, LOOK_ONLY = 0, 1 -- phases; the third books as for a request refused elsewhere

local CHARGE_FORMAT = '<BBBi7I7i7I7I4I4I4I7BI7BBB'
local AROUND_FORMAT = '<I7I7I7I7'

local function take_nothing() -- from a limit of no hits
  return false, 0, 0, NEVER, 0, 0, 0, false, 0
end

local takes = {take_credit, take_window, take_log} -- by family

local function parse_charge(text, at)
  local vote, book, family, hits, at_least, tick, max_delay, n, b, d, p, exponent, queue, sliding, envoy, calendar, next =
    read(CHARGE_FORMAT, text, at)
  local c = {
    take = n == 0 and take_nothing or takes[family],
    vote = vote, mode = book + 1, family = family,
    hits = hits, at_least = at_least, tick = tick, max_delay = max_delay,
    n = n, b = b, d = d, p = p, tau = tick_of(exponent), exponent = exponent, queue = queue,
    limit = write(CREDIT_LIMIT, p, exponent, d),
    sliding = sliding == 1, envoy = envoy == 1, around = nil,
  }
  if calendar == 1 then
    local w0, w1, w2, w3
    w0, w1, w2, w3, next = read(AROUND_FORMAT, text, next)
    c.around = {w0, w1, w2, w3}
  end
  return c, next
end

local clock -- of Redis, read once
local spare = 0 -- milliseconds a state outlives its use

-- parse returns a request: its charges, how many, its phase, and now.
local function parse(text)
  local now, phase, many, at
  now, spare, phase, many, at = read('<I7I7BI2', text)
  if now == 0 then
    if not clock then
      local time = call('TIME')
      clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
    end
    now = clock
  end
  local request = {now = min(now, MAX_TIME), phase = phase, many = many}
  for i = 1, many do
    request[i], at = parse_charge(text, at)
  end
  return request
end

-- Of a charge: whether it is allowed, granted, remaining, the delay of one that is allowed or when to retry one that is
-- not, reset_after, tick. It is short because Lua hashes all bytes of a string, in Redis.
local ANSWER_FORMAT = '<Bi5I4i7I7I7'
local reply, size = {}, 0

local places = {byte(ARGV[2], 1, -1)}
local repeated = #places > 0 -- some key; else a charge's place is its number

-- take_one is take_many for the common request of one charge: refused, it would book on the stored state just what it
-- booked when asked.
local function take_one(request, place)
  local c = request[1]
  local s = load(c, place)
  local allowed, granted, remaining, retry_after, reset_after, delay, tick, changed, ttl =
    c.take(s, request.now, c, c.mode, 0)
  if changed then
    store(c, place, s, ttl)
  end
  size = size + 1
  reply[size] =
    write(ANSWER_FORMAT, allowed and 1 or 0, granted, remaining, allowed and delay or retry_after, reset_after, tick)
end

-- Of the request at hand, by charge: what was there before it, whether it is allowed and has changed what was there, what
-- earlier charges had taken from its key, and whether it refuses the request. All requests use these, as tables are dear.
local olds, old_ttls, alloweds, changeds, befores, refuses = {}, {}, {}, {}, {}, {}

-- vote finds out which charges refuse the request, and returns whether one does.
local function vote(request)
  local room = {} -- by quota group: whether a charge of it is allowed
  for i = 1, request.many do
    local group = request[i].vote
    if group > NONE and alloweds[i] then
      room[group] = true
    end
  end
  local refused = false
  for i = 1, request.many do
    local c = request[i]
    refuses[i] = not alloweds[i] and (c.vote == ENFORCE or c.vote > NONE and not room[c.vote])
    refused = refused or refuses[i]
  end
  return refused
end

-- take_many takes the charges of a request that come after so many others.
local function take_many(request, others)
  local many, now, phase = request.many, request.now, request.phase
  local start = size

  -- Ask, in place, remembering what was there.
  local took = repeated and {} -- by place
  local allowed_all = true
  for i = 1, many do
    local c = request[i]
    local place = places[others + i] or others + i
    local s = load(c, place)
    if c.family == LOG then
      olds[i], s = s, copy_log(s)
    else
      olds[i] = values[place]
    end
    old_ttls[i] = ttls[place] or false
    local allowed, granted, remaining, retry_after, reset_after, delay, tick, changed, ttl =
      c.take(s, now, c, c.mode, 0)
    if changed then
      store(c, place, s, ttl)
    end
    allowed_all = allowed_all and allowed
    alloweds[i], changeds[i] = allowed, changed
    if took then
      befores[i] = took[place] or 0
      took[place] = max(0, befores[i] + granted)
    end
    reply[start + i] =
      write(ANSWER_FORMAT, allowed and 1 or 0, granted, remaining, allowed and delay or retry_after, reset_after, tick)
  end
  size = start + many

  if phase == WHOLE and allowed_all then
    return
  end
  if not vote(request) and phase == WHOLE then
    return
  end

  -- Refused: put back what was there, and book on it what is booked even so. A charge that has changed nothing would find
  -- the same again, unless others of its key come before it.
  for i = many, 1, -1 do
    if changeds[i] then
      local place = places[others + i] or others + i
      if request[i].family == LOG then
        logs[place] = olds[i]
      else
        values[place] = olds[i]
      end
      ttls[place] = old_ttls[i]
    end
  end
  local booked = took and {} -- by place
  for i = 1, many do
    if changeds[i] or took then
      local c = request[i]
      local place = places[others + i] or others + i
      local mode = LOOK
      if phase ~= LOOK_ONLY and (c.mode == REPORT or c.mode == COUNT and refuses[i]) then
        mode = c.mode
      end
      local before = 0
      if took then
        before = max(0, befores[i] - (booked[place] or 0))
      end
      local s = load(c, place)
      local _, granted, remaining, retry_after, reset_after, _, tick, changed, ttl =
        c.take(s, now, c, mode, before)
      if changed then
        store(c, place, s, ttl)
      end
      if took then
        booked[place] = (booked[place] or 0) + granted
      end
      local allowed = alloweds[i]
      if allowed then
        retry_after = 0
      elseif retry_after ~= NEVER then
        retry_after = max(1, retry_after)
      end
      reply[start + i] = write(ANSWER_FORMAT, allowed and 1 or 0, granted, remaining, retry_after, reset_after, tick)
    end
  end
end

local order = {byte(ARGV[1], 1, -1)}
local requests = {} -- those that are parsed, by number
local taken = 0 -- charges
for i = 1, #order do
  local number = order[i]
  local request = requests[number]
  if not request then
    request = parse(ARGV[number + 2])
    requests[number] = request
  end
  if request.many == 1 and request.phase == WHOLE then
    take_one(request, places[taken + 1] or taken + 1)
  else
    take_many(request, taken)
  end
  taken = taken + request.many
end

save(spare)

return table.concat(reply)
