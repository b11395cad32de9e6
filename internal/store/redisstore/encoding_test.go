package redisstore

import (
	"context"
	"encoding/binary"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// encodings are ways to store the five integers of a credit bucket; each script reads a bucket, changes it and writes it
// with a time to live. ARGV holds the numbers of an absent one.
var encodings = []struct{ name, script string }{
	{"text", `
		local v = redis.call('GET', KEYS[1])
		local level, t, p, tau, d = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
		if v then level, t, p, tau, d = string.match(v, '^(%d+):(%d+):(%d+):(%d+):(%d+)$') end
		level, t, p, tau, d = level - 1, t + 1, p + 0, tau + 0, d + 0
		redis.call('SET', KEYS[1], string.format('%d:%d:%d:%d:%d', level, t, p, tau, d), 'PX', 3600000)
		return 1`},
	{"hash", `
		local v = redis.call('HMGET', KEYS[1], 'l', 't', 'p', 'u', 'd')
		local level, t, p, tau, d = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
		if v[1] then level, t, p, tau, d = v[1], v[2], v[3], v[4], v[5] end
		level, t = level - 1, t + 1
		redis.call('HSET', KEYS[1], 'l', string.format('%d', level), 't', string.format('%d', t), 'p', p, 'u', tau, 'd', d)
		redis.call('PEXPIRE', KEYS[1], 3600000)
		return 1`},
	{"doubles", `
		local v = redis.call('GET', KEYS[1])
		local level, t, p, tau, d = ARGV[1] + 0, ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0, ARGV[5] + 0
		if v then level, t, p, tau, d = struct.unpack('<ddddd', v) end
		redis.call('SET', KEYS[1], struct.pack('<ddddd', level - 1, t + 1, p, tau, d), 'PX', 3600000)
		return 1`},
	{"msgpack", `
		local v = redis.call('GET', KEYS[1])
		local s = {ARGV[1] + 0, ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0, ARGV[5] + 0}
		if v then s = cmsgpack.unpack(v) end
		s[1], s[2] = s[1] - 1, s[2] + 1
		redis.call('SET', KEYS[1], cmsgpack.pack(s), 'PX', 3600000)
		return 1`},
	{"packed", `
		local v = redis.call('GET', KEYS[1])
		local level, t, p, tau, d, family = ARGV[1] + 0, ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0, ARGV[5] + 0, 1
		if v then family, level, t, p, tau, d = struct.unpack('<BI7I7I7BI4', v) end
		redis.call('SET', KEYS[1], struct.pack('<BI7I7I7BI4', family, level - 1, t + 1, p, tau, d), 'PX', 3600000)
		return 1`},
	{"instant", `
		local v = redis.call('GET', KEYS[1]) or ARGV[2]
		redis.call('SET', KEYS[1], string.format('%d', v + 1), 'PX', 3600000)
		return 1`},
}

// BenchmarkEncodings stores 200,000 buckets in each way, under the keys of real ones, and measures Redis: bytes a bucket,
// and CPU of an update in a pipeline. "instant" is the least there could be, a GCRA of one integer, which knows neither
// debt nor the limit it was written under. Run it with -benchtime 1x.
func BenchmarkEncodings(b *testing.B) {
	const buckets = 200_000
	ctx := context.Background()
	for _, e := range encodings {
		b.Run(e.name, func(b *testing.B) {
			server := redistest.Start(b)
			client := server.Client()
			hash, err := client.ScriptLoad(ctx, e.script).Result()
			if err != nil {
				b.Fatal(err)
			}
			update := func() {
				for from := 0; from < buckets; from += 200 {
					pipe := client.Pipeline()
					for i := from; i < from+200; i++ {
						var k store.Key
						binary.BigEndian.PutUint64(k[8:], uint64(i))
						pipe.EvalSha(ctx, hash, []string{k.String()}, 3_599_000_000_000, 1_835_395_200_123_456, 3_600_000_000, 1, 0)
					}
					if _, err := pipe.Exec(ctx); err != nil {
						b.Fatal(err)
					}
				}
			}
			empty := usedMemory(b, client)
			update()
			perBucket := float64(usedMemory(b, client)-empty) / buckets
			before := redisCPU(b, client)
			for b.Loop() {
				update()
			}
			cpu := redisCPU(b, client) - before
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(perBucket, "bytes/bucket")
			b.ReportMetric(float64(cpu.Nanoseconds())/1e3/float64(b.N)/buckets, "redis-µs/update")
		})
	}
}

// usedMemory returns what Redis has allocated.
func usedMemory(b *testing.B, client *redis.Client) int64 {
	b.Helper()
	info, err := client.Info(context.Background(), "memory").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
	}
	b.Fatal("INFO memory tells no used_memory")
	return 0
}
