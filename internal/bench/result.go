package bench

import (
	"os"
	"time"
)

// Result is what came of a load. Latencies are in microseconds, of a closed loop from sending, of an open one from the
// moment a request was due.
type Result struct {
	Seed        uint64  `json:"seed"`
	Seconds     float64 `json:"seconds"`
	Rate        float64 `json:"rate"` // answers a second
	Answers     int64   `json:"answers"`
	OK          int64   `json:"ok"`
	Over        int64   `json:"over_limit"`
	Failed      int64   `json:"failed"`             // no decision: an error of gRPC, or an unknown code
	Dropped     int64   `json:"dropped"`            // not sent, since too many were in flight (open loop only)
	ServerCPU   float64 `json:"server_cpu_us"`      // of the server's process, an answer
	RedisCPU    float64 `json:"redis_cpu_us"`       // of Redis's process, an answer
	ClientCPU   float64 `json:"client_cpu_us"`      // of this process, an answer
	Store       float64 `json:"paid_at_store"`      // part of the decisions that the store took, 0…1
	Denied      float64 `json:"denied_from_memory"` // part that was denied without asking the store, 0…1
	Allocations float64 `json:"allocations"`        // objects that the server allocated, an answer
	Lat         Latency `json:"latency_us"`
}

// Latency is a distribution in microseconds.
type Latency struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
}

// sample is what other processes have come to at a moment.
type sample struct {
	server, redis, client time.Duration
	counters              counters
}

// cpu fills in CPU times.
func (r *run) cpu(s *sample) (err error) {
	for _, p := range []struct {
		pid int
		cpu *time.Duration
	}{{r.load.PID, &s.server}, {r.load.RedisPID, &s.redis}} {
		if p.pid == 0 {
			continue
		}
		if *p.cpu, err = CPUTime(p.pid); err != nil {
			return err
		}
	}
	s.client, _ = CPUTime(os.Getpid()) // 0 where there is no /proc
	return nil
}

// count fills in counters. Telling them costs the server CPU time, which is kept out of what is measured.
func (r *run) count(s *sample) (err error) {
	if r.load.Metrics != "" {
		s.counters, err = readCounters(r.load.Metrics)
	}
	return err
}

func (r *run) result(connections []*connection, took time.Duration, before, after sample) *Result {
	latency := newHistogram()
	res := &Result{Seed: r.load.Seed, Seconds: took.Seconds(), Dropped: r.dropped.Load()}
	for _, c := range connections {
		c.mu.Lock()
		latency.Merge(c.tally.latency)
		res.OK += c.tally.ok
		res.Over += c.tally.over
		res.Failed += c.tally.failed
		c.mu.Unlock()
	}
	res.Answers = res.OK + res.Over + res.Failed
	if res.Answers == 0 {
		return res
	}
	n := float64(res.Answers)
	res.Rate = n / took.Seconds()
	each := func(before, after time.Duration) float64 { return float64(after-before) / 1e3 / n }
	res.ServerCPU, res.RedisCPU = each(before.server, after.server), each(before.redis, after.redis)
	res.ClientCPU = each(before.client, after.client)
	res.Store, _ = after.counters.share(before.counters, "store")
	res.Denied, _ = after.counters.share(before.counters, "denied_cache")
	res.Allocations = (after.counters.mallocs - before.counters.mallocs) / n
	at := func(q float64) float64 { return float64(latency.ValueAtQuantile(q)) / 1e3 }
	res.Lat = Latency{
		P50: at(50), P90: at(90), P99: at(99), P999: at(99.9),
		Max: float64(latency.Max()) / 1e3, Mean: latency.Mean() / 1e3,
	}
	return res
}
