package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/bench"
)

// The figures of a Result.
func serverCPU(r *bench.Result) float64   { return r.ServerCPU }
func redisCPU(r *bench.Result) float64    { return r.RedisCPU }
func rate(r *bench.Result) float64        { return r.Rate }
func p50(r *bench.Result) float64         { return r.Lat.P50 }
func p99(r *bench.Result) float64         { return r.Lat.P99 }
func p999(r *bench.Result) float64        { return r.Lat.P999 }
func allocations(r *bench.Result) float64 { return r.Allocations }
func paid(r *bench.Result) float64        { return r.Store }
func denied(r *bench.Result) float64      { return r.Denied }

// table is a table in Markdown.
type table struct{ strings.Builder }

func (t *table) row(cells ...string) {
	t.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

func (t *table) head(cells ...string) {
	t.row(cells...)
	t.row(strings.Split(strings.Repeat("-- ", len(cells)-1)+"--", " ")...)
}

func number(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }

// thousands writes 12345 as 12.3k.
func thousands(v float64) string { return number(v/1000, 1) + "k" }

// void says why a row of Redis counts for nothing: decisions that were not paid there cost it nothing. "": it counts.
func (r results) void(server, load string) string {
	if server != overTCP && server != overUnix {
		return ""
	}
	store, _ := r.median(server, load, paid)
	fromMemory, _ := r.median(server, load, denied)
	if load == refused || load == hot {
		store += fromMemory // what it is known to deny need not be asked of it
	}
	if store < 0.999 {
		return fmt.Sprintf("void: %s %% paid at the store", number(store*100, 2))
	}
	return ""
}

// figures is the table of everyone under every load.
func figures(servers []*server, r results) string {
	var t table
	t.head("server", "load", "server CPU, µs", "× floor", "Redis CPU, µs", "decisions/s", "p50, ms", "p99", "p99.9", "allocations", "paid at the store")
	for _, v := range servers {
		for _, kind := range v.kinds() {
			m := func(f func(*bench.Result) float64) float64 { x, _ := r.median(v.name, kind, f); return x }
			against := saturated
			if kind == open {
				against = open
			}
			floor, _ := r.median(floorName, against, serverCPU)
			cells := []string{
				v.name, kind, number(m(serverCPU), 2), number(m(serverCPU)/floor, 2), "", thousands(m(rate)),
				number(m(p50)/1e3, 2), number(m(p99)/1e3, 2), number(m(p999)/1e3, 2), "", "",
			}
			if v.redis != 0 {
				cells[4] = number(m(redisCPU), 2)
			}
			if v.metrics != "" {
				cells[9] = number(m(allocations), 1)
			}
			if v.ours {
				cells[10] = number(m(paid)*100, 2) + " %"
				if d := m(denied); d > 0 {
					cells[10] += ", denied from memory " + number(d*100, 2) + " %"
				}
			}
			if why := r.void(v.name, kind); why != "" {
				cells[10] = why
			}
			t.row(cells...)
		}
	}
	redis, _ := r.median(aloneName, saturated, redisCPU)
	perSecond, _ := r.median(aloneName, saturated, rate)
	t.row(aloneName, "16 calls in a pipeline, 32 connections", "", "", number(redis, 2), thousands(perSecond), "", "", "", "", "")
	return t.String()
}

func memoryTable(all []footprint) string {
	var t table
	t.head("buckets in", "buckets", "bytes a bucket", "resident, MiB")
	for _, f := range all {
		t.row(f.where, thousands(float64(f.buckets)), number(f.each, 0), number(float64(f.resident)/(1<<20), 0))
	}
	return t.String()
}
