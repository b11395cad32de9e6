-- A change of settings and its entry in the audit log, both or neither; 0 if the log has another end than was seen.
-- KEYS: state (hash), log (list), blobs (hash)
-- ARGV: head seen, head now, entry, most entries kept, number of fields, field value …, number of blobs, digest value …,
--       digests to drop …; a field without a value goes.
if (redis.call('HGET', KEYS[1], 'head') or '') ~= ARGV[1] then
  return 0
end
-- A command that Redis refuses ends the script where it stands and takes nothing back. So whatever may be refused, for
-- want of a right or for a key of another type, is tried where it changes nothing; the entry is the first that stays. That
-- memory is full only the first write is told, if it is one that needs some.
if ARGV[1] ~= '' then
  redis.call('HSET', KEYS[1], 'head', ARGV[1])
end
for _, hash in ipairs({KEYS[1], KEYS[3]}) do
  redis.call('HDEL', hash, '')
  redis.call('HSET', hash, '', '')
  redis.call('HDEL', hash, '')
end
redis.call('LTRIM', KEYS[2], 0, -1)
redis.call('RPUSH', KEYS[2], ARGV[3])
local i = 6
for _ = 1, tonumber(ARGV[5]) do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', KEYS[1], ARGV[i])
  else
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
  i = i + 2
end
local blobs = tonumber(ARGV[i])
i = i + 1
for _ = 1, blobs do
  redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
  i = i + 2
end
while i <= #ARGV do
  redis.call('HDEL', KEYS[3], ARGV[i])
  i = i + 1
end
redis.call('HSET', KEYS[1], 'head', ARGV[2])
redis.call('LTRIM', KEYS[2], -tonumber(ARGV[4]), -1)
return 1
