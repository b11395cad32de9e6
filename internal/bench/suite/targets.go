package main

import (
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bench"
)

// target is a figure that is to be at most so much.
type target struct {
	what  string
	unit  string // "×" for a ratio, "" for a count
	most  float64
	value func() (v float64, known bool, void string)
}

// verdict says whether a figure is within its target.
func verdict(v, most float64) string {
	if v <= most {
		return "met"
	}
	return "**missed**"
}

// verdicts is the table of targets, each met or missed.
func verdicts(r results, memory []footprint, own inProcess) string {
	ratio := func(a, aLoad, b, bLoad string, f func(*bench.Result) float64) func() (float64, bool, string) {
		return func() (float64, bool, string) {
			x, ok := r.median(a, aLoad, f)
			y, ok2 := r.median(b, bLoad, f)
			return x / y, ok && ok2 && y > 0, r.void(a, aLoad) + r.void(b, bLoad)
		}
	}
	of := func(a, load string, f func(*bench.Result) float64) func() (float64, bool, string) {
		return func() (float64, bool, string) {
			x, ok := r.median(a, load, f)
			return x, ok, r.void(a, load)
		}
	}
	bytes := func(i int) func() (float64, bool, string) {
		return func() (float64, bool, string) { return memory[i].each, true, "" }
	}
	count := func(n float64) func() (float64, bool, string) {
		return func() (float64, bool, string) { return n, true, "" }
	}
	const erl = "envoyproxy/ratelimit"
	targets := []target{
		{"embedded store, server CPU ÷ the floor's", "×", 0.55, ratio(embedded, saturated, floorName, saturated, serverCPU)},
		{"Redis over TCP, server CPU ÷ the floor's", "×", 0.9, ratio(overTCP, saturated, floorName, saturated, serverCPU)},
		{"Redis over TCP, server CPU ÷ envoyproxy/ratelimit's", "×", 0.25, ratio(overTCP, saturated, erl, saturated, serverCPU)},
		{"Redis CPU ÷ that of Redis alone", "×", 1.1, ratio(overTCP, saturated, aloneName, saturated, redisCPU)},
		{"Redis CPU ÷ envoyproxy/ratelimit's", "×", 0.45, ratio(overTCP, saturated, erl, saturated, redisCPU)},
		{"hot key over its limit, decisions that asked Redis (once a second it is asked anew)", "%", 0.5, func() (float64, bool, string) {
			x, ok := r.median(overTCP, hot, paid)
			return x * 100, ok, r.void(overTCP, hot)
		}},
		{"hot key over its limit, Redis CPU", "µs", 0.1, of(overTCP, hot, redisCPU)},
		{"hot key over its limit on Redis, server CPU ÷ the embedded store's, saturated", "×", 1, ratio(overTCP, hot, embedded, saturated, serverCPU)},
		{"a refusal ÷ an admission, embedded store, server CPU", "×", 1, ratio(embedded, refused, embedded, saturated, serverCPU)},
		{"a refusal ÷ an admission, Redis over TCP, server CPU", "×", 1, ratio(overTCP, refused, overTCP, saturated, serverCPU)},
		{"a refusal ÷ an admission, Redis over TCP, Redis CPU", "×", 1, ratio(overTCP, refused, overTCP, saturated, redisCPU)},
		{"three descriptors ÷ one, embedded store, server CPU", "×", 1.3, ratio(embedded, three, embedded, saturated, serverCPU)},
		{"three descriptors ÷ one, Redis over TCP, server CPU", "×", 1.3, ratio(overTCP, three, overTCP, saturated, serverCPU)},
		{"three descriptors ÷ one, Redis over TCP, Redis CPU", "×", 2.2, ratio(overTCP, three, overTCP, saturated, redisCPU)},
		{"p99 at 3,000/s, embedded store ÷ the floor's", "×", 1.2, ratio(embedded, open, floorName, open, p99)},
		{"p99 at 3,000/s, Redis over TCP ÷ the floor's", "×", 2, ratio(overTCP, open, floorName, open, p99)},
		{"bytes a bucket, embedded store", "B", 120, bytes(0)},
		{"bytes a bucket, Redis", "B", 180, bytes(1)},
		{"allocations of a match", "", 0, count(own.match)},
		{"allocations of a decision, embedded store", "", 0, count(own.decide)},
		{"allocations of a call beyond gRPC's own, embedded store", "", 4, func() (float64, bool, string) {
			x, ok := r.median(embedded, saturated, allocations)
			y, ok2 := r.median(bareName, saturated, allocations)
			return x - y, ok && ok2, ""
		}},
	}
	var t table
	t.head("target (medians; saturated unless it says otherwise)", "at most", "measured", "")
	for _, x := range targets {
		v, known, void := x.value()
		most := strings.TrimSpace(number(x.most, 2) + " " + x.unit)
		switch {
		case !known:
			t.row(x.what, most, "", "not measured: no such peer was given")
		case void != "":
			t.row(x.what, most, strings.TrimSpace(number(v, 2)+" "+x.unit), void)
		default:
			t.row(x.what, most, strings.TrimSpace(number(v, 2)+" "+x.unit), verdict(v, x.most))
		}
	}
	return t.String()
}
