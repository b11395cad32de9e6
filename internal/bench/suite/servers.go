package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bench"
)

// server is one of those that are measured.
type server struct {
	name    string
	addr    string // of its gRPC port
	pid     int
	redis   int    // the process of its Redis; 0: none
	socket  string // its Redis's address, to ask for memory; host:port or a path
	metrics string // "": not ours
	ours    bool
}

// rules are what our servers, and the peers, decide by: limits that are never reached though they refill so slowly that a
// bucket once used is never full again, and two that are soon spent.
const rules = `domain: bench
descriptors:
  - {key: key1, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: key2, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: key3, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: key4, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: key5, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: key6, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: key7, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: key8, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: strict, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: hot, rate_limit: {unit: hour, requests_per_unit: 100}}
`

// start starts ratelimitd; redisURL is "" for the embedded store.
func (s *suite) startOurs(ctx context.Context, name, rulesFile, redisURL string, more ...string) (*server, error) {
	addrs, err := freeAddrs(3)
	if err != nil {
		return nil, err
	}
	argv := []string{
		s.binary, "serve", "--rules", rulesFile, "--grpc-addr", addrs[0], "--http-addr", addrs[1], "--admin-addr", addrs[2],
		"--drain-delay", "0s",
	}
	if redisURL != "" {
		argv = append(argv, "--redis-url", redisURL, "--redis-timeout", "2s")
	}
	pid, err := s.children.start(name, nil, append(argv, more...)...)
	if err != nil {
		return nil, err
	}
	v := &server{name: name, addr: addrs[0], pid: pid, metrics: "http://" + addrs[2] + "/metrics", ours: true}
	if err := waitFor(ctx, name+" (see "+s.children.log(name)+")", func() bool { return answers("tcp", v.addr) }); err != nil {
		return nil, err
	}
	if redisURL == "" {
		return v, nil
	}
	// A start does not wait for Redis: decisions use it once the key secret is read.
	return v, waitFor(ctx, name+" does not decide by Redis", func() bool {
		r, err := bench.Run(ctx, bench.Load{
			Addr: v.addr, Message: s.message("key1"), Connections: 1, Streams: 1, Keys: 10, Count: 20, Metrics: v.metrics,
		})
		return err == nil && r.Store == 1
	})
}

// startRedis starts an empty Redis that keeps nothing on disk.
func (s *suite) startRedis(ctx context.Context, name string, unix bool) (pid int, addr string, err error) {
	argv := []string{"redis-server", "--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--dir", s.children.dir}
	network := "tcp"
	if unix {
		network, addr = "unix", filepath.Join(s.children.dir, "redis.sock")
		argv = append(argv, "--port", "0", "--unixsocket", addr)
	} else {
		if addr, err = freeAddr(); err != nil {
			return 0, "", err
		}
		_, port, _ := net.SplitHostPort(addr)
		argv = append(argv, "--port", port)
	}
	if pid, err = s.children.start(name, nil, argv...); err != nil {
		return 0, "", err
	}
	return pid, addr, waitFor(ctx, name, func() bool { return answers(network, addr) })
}

// startOnRedis starts ratelimitd and a Redis of its own.
func (s *suite) startOnRedis(ctx context.Context, name, rulesFile string, unix bool) (*server, error) {
	pid, addr, err := s.startRedis(ctx, name+" redis", unix)
	if err != nil {
		return nil, err
	}
	url := "redis://" + addr
	if unix {
		url = "unix://" + addr
	}
	v, err := s.startOurs(ctx, name, rulesFile, url)
	if err != nil {
		return nil, err
	}
	v.redis, v.socket = pid, addr
	return v, nil
}

// startFloor starts a floor in a process of its own.
func (s *suite) startFloor(ctx context.Context, name string) (*server, error) {
	addrs, err := freeAddrs(2)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	pid, err := s.children.start(name, nil, self, name, addrs[0], addrs[1])
	if err != nil {
		return nil, err
	}
	v := &server{name: name, addr: addrs[0], pid: pid, metrics: "http://" + addrs[1] + "/metrics"}
	return v, waitFor(ctx, name, func() bool { return answers("tcp", v.addr) && answers("tcp", addrs[1]) })
}

// Peers, if a binary is given. They decide by the same limits, but for the notation.
func (s *suite) startERL(ctx context.Context, binary string) (*server, error) {
	redis, redisAddr, err := s.startRedis(ctx, "envoyproxy-ratelimit redis", false)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(s.children.dir, "erl", "ratelimit", "config")
	if err := os.MkdirAll(config, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(config, "bench.yaml"), []byte(rules), 0o644); err != nil {
		return nil, err
	}
	addrs, err := freeAddrs(3)
	if err != nil {
		return nil, err
	}
	port := func(addr string) string { _, p, _ := net.SplitHostPort(addr); return p }
	// Its fair best case: no statistics, a memory of what is over its limit, and a pipeline of 150 µs, which it heeds up to
	// 167d0f8; since it took to radix v4 (e9ce92c), only on a Redis Cluster.
	pid, err := s.children.start("envoyproxy-ratelimit", []string{
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"PORT=" + port(addrs[1]), "GRPC_PORT=" + port(addrs[0]), "DEBUG_PORT=" + port(addrs[2]),
		"USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=error", "BACKEND_TYPE=redis", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redisAddr,
		"REDIS_PIPELINE_WINDOW=150us", "REDIS_PIPELINE_LIMIT=16",
		"LOCAL_CACHE_SIZE_IN_BYTES=67108864",
		"RUNTIME_ROOT=" + filepath.Join(s.children.dir, "erl"), "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
	}, binary)
	if err != nil {
		return nil, err
	}
	v := &server{name: "envoyproxy/ratelimit", addr: addrs[0], pid: pid, redis: redis}
	return v, waitFor(ctx, "envoyproxy/ratelimit (see "+s.children.log("envoyproxy-ratelimit")+")", func() bool { return answers("tcp", v.addr) })
}

// limitadorLimits are those of rules that are asked for. Every limit is tried on every request: an entry that is missing
// passes it by, but a descriptor that is missing fails the request, unless a condition has asked for it.
const limitadorLimits = `
- {namespace: bench, max_value: 1000000, seconds: 31536000, conditions: [], variables: ["descriptors[0].key1"]}
- {namespace: bench, max_value: 1000000, seconds: 31536000, conditions: ["size(descriptors) > 1"], variables: ["descriptors[1].key2"]}
- {namespace: bench, max_value: 1000000, seconds: 31536000, conditions: ["size(descriptors) > 2"], variables: ["descriptors[2].key3"]}
- {namespace: bench, max_value: 100, seconds: 3600, conditions: [], variables: ["descriptors[0].hot"]}
`

func (s *suite) startLimitador(ctx context.Context, binary string, onRedis bool) (*server, error) {
	addrs, err := freeAddrs(2)
	if err != nil {
		return nil, err
	}
	v := &server{name: "Limitador, memory", addr: addrs[0]}
	storage := []string{"memory"}
	if onRedis {
		redis, redisAddr, err := s.startRedis(ctx, "limitador redis", false)
		if err != nil {
			return nil, err
		}
		v.name, v.redis = "Limitador, Redis", redis
		storage = []string{"redis", "redis://" + redisAddr}
	}
	// A file each: it is read again when it is written to, be it half.
	file, err := s.write("limitador-"+storage[0]+".yaml", limitadorLimits)
	if err != nil {
		return nil, err
	}
	rlsHost, rlsPort, _ := net.SplitHostPort(addrs[0])
	httpHost, httpPort, _ := net.SplitHostPort(addrs[1])
	argv := append([]string{binary, "-b", rlsHost, "-p", rlsPort, "-B", httpHost, "-P", httpPort, file}, storage...)
	if v.pid, err = s.children.start(v.name, nil, argv...); err != nil {
		return nil, err
	}
	return v, waitFor(ctx, v.name+" (see "+s.children.log(v.name)+")", func() bool { return answers("tcp", v.addr) })
}

// load is what all loads on v have in common.
func (s *suite) load(v *server, m bench.Message) bench.Load {
	return bench.Load{
		Addr: v.addr, Message: m, Connections: 4, Streams: 32, Keys: 100_000, Seed: s.seed,
		Warm: 300 * time.Millisecond, Duration: s.slice, PID: v.pid, RedisPID: v.redis, Metrics: v.metrics,
	}
}
