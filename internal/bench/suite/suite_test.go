package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bench"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	r := results{}
	for _, us := range []float64{9, 1, 5} {
		r.add("floor", saturated, &bench.Result{ServerCPU: us})
	}
	if got, ok := r.median("floor", saturated, serverCPU); got != 5 || !ok {
		t.Errorf("got %v, %v, want 5", got, ok)
	}
	r.add("floor", saturated, &bench.Result{ServerCPU: 7})
	if got, _ := r.median("floor", saturated, serverCPU); got != 6 {
		t.Errorf("of four: got %v, want 6", got)
	}
	if _, ok := r.median("floor", open, serverCPU); ok {
		t.Error("got a median of nothing")
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	r := results{}
	r.add("floor", saturated, &bench.Result{ServerCPU: 10})
	r.add(embedded, saturated, &bench.Result{ServerCPU: 5, Allocations: 52})
	r.add(bareName, saturated, &bench.Result{Allocations: 50.5})
	r.add(overTCP, saturated, &bench.Result{ServerCPU: 12, RedisCPU: 5, Store: 1})
	r.add(overTCP, three, &bench.Result{ServerCPU: 12, RedisCPU: 9, Store: 0.5})
	r.add(aloneName, saturated, &bench.Result{RedisCPU: 10})
	got := verdicts(r, []footprint{{each: 100}, {each: 200}}, inProcess{decide: 1})
	for _, want := range []string{
		"| embedded store, server CPU ÷ the floor's | 0.55 × | 0.50 × | met |",
		"| Redis over TCP, server CPU ÷ the floor's | 0.90 × | 1.20 × | **missed** |",
		"| Redis CPU ÷ that of Redis alone | 1.10 × | 0.50 × | met |",
		"| Redis over TCP, server CPU ÷ envoyproxy/ratelimit's | 0.25 × |  | not measured: no such peer was given |",
		"| three descriptors ÷ one, Redis over TCP, Redis CPU | 2.20 × | 1.80 × | void: 50.00 % paid at the store |",
		"| bytes a bucket, Redis | 180.00 B | 200.00 B | **missed** |",
		"| allocations of a match | 0.00 | 0.00 | met |",
		"| allocations of a decision, embedded store | 0.00 | 1.00 | **missed** |",
		"| allocations of a call beyond gRPC's own, embedded store | 4.00 | 1.50 | met |",
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("got\n%s\nwant a row %s", got, want)
		}
	}
}

func TestPublish(t *testing.T) {
	t.Parallel()
	s := suite{page: filepath.Join(t.TempDir(), "page.md")}
	write := func(text string) {
		if err := os.WriteFile(s.page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a\n<!-- generated: x -->\nold\n<!-- end: x -->\nb\n")
	if err := s.publish("x", "new\n"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(s.page)
	if want := "a\n<!-- generated: x -->\n\nnew\n\n<!-- end: x -->\nb\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	write("nothing\n")
	if err := s.publish("x", "new\n"); err == nil {
		t.Error("got no error for a page without marks")
	}
}

func TestPlot(t *testing.T) {
	t.Parallel()
	c := curve{what: "so many", lines: []line{
		{growEmbedded, []point{{10, 5}, {1000, 5.5}, {100_000, 6}}},
		{growRedis, []point{{10, 5}, {1000, 12}, {100_000, 6.1}}},
	}}
	svg := plot(c)
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("not XML: %v\n%s", err, svg)
		}
	}
	for _, want := range []string{"M56.0 ", "570.0 ", ">100k<", ">15<", growEmbedded} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %q in\n%s", want, svg)
		}
	}
	if table := growthTable(c); !strings.Contains(table, "| "+growRedis+" | 5.00 | 12.00 | 6.10 | 1.22 |") {
		t.Errorf("got\n%s", table)
	}
}
