package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bench"
)

// cell is one figure-to-be: a server under a kind of load.
type cell struct {
	server *server
	load   string
	run    func(context.Context) (*bench.Result, error)
}

// The kinds of load.
const (
	saturated = "saturated"         // 128 in flight, one descriptor, 100,000 keys
	three     = "three descriptors" // of three limits
	refused   = "refused"           // as saturated; every key is over its limit
	hot       = "hot key"           // one key, far over its limit
	open      = "3,000/s"           // open loop
)

const openRate = 3000

// kinds returns the loads a server is put under.
func (v *server) kinds() []string {
	switch {
	case v.name == floorName:
		return []string{saturated, open}
	case v.name == bareName:
		return []string{saturated}
	case v.ours:
		return []string{saturated, three, refused, hot, open}
	default:
		return []string{saturated, three, hot, open}
	}
}

// kindLoad returns the load of a kind.
func (s *suite) kindLoad(v *server, kind string) bench.Load {
	l := s.load(v, s.message("key1"))
	switch kind {
	case three:
		l.Message = s.message("key1", "key2", "key3")
	case refused:
		l.Message = s.message("strict")
	case hot:
		l.Message = s.message("hot")
	case open:
		l.Rate, l.Streams = openRate, 1024
		l.Duration = 2 * s.slice // so that the last thousandth is a few requests
	}
	return l
}

// results are what each server made of each load, one a round.
type results map[string]map[string][]*bench.Result

func (r results) add(server, load string, res *bench.Result) {
	if r[server] == nil {
		r[server] = map[string][]*bench.Result{}
	}
	r[server][load] = append(r[server][load], res)
}

// median returns the median of a figure, and whether there is one.
func (r results) median(server, load string, figure func(*bench.Result) float64) (float64, bool) {
	all := r[server][load]
	if len(all) == 0 {
		return 0, false
	}
	v := make([]float64, len(all))
	for i, res := range all {
		v[i] = figure(res)
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2, true
}

// compare is `make bench`.
func (s *suite) compare(ctx context.Context) error {
	began := time.Now()
	file, err := s.write("rules.yaml", rules)
	if err != nil {
		return err
	}
	servers, err := s.startAll(ctx, file)
	if err != nil {
		return err
	}
	alone, err := s.startAlone(ctx)
	if err != nil {
		return err
	}
	var cells []cell
	for _, v := range servers {
		for _, kind := range v.kinds() {
			l := s.kindLoad(v, kind)
			if err := s.fill(ctx, l, kind); err != nil {
				return fmt.Errorf("%s, %s: %w", v.name, kind, err)
			}
			cells = append(cells, cell{v, kind, func(ctx context.Context) (*bench.Result, error) { return bench.Run(ctx, l) }})
		}
	}
	cells = append(cells, cell{&server{name: aloneName}, saturated, alone.run})

	got := results{}
	order := rand.New(rand.NewPCG(s.seed, 0))
	for round := range s.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d, %d measurements\n", round+1, s.rounds, len(cells))
		order.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
		for _, c := range cells {
			r, err := c.run(ctx)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", c.server.name, c.load, err)
			}
			if r.Failed > 0 {
				return fmt.Errorf("%s, %s: %d of %d requests were answered without a decision", c.server.name, c.load, r.Failed, r.Answers)
			}
			got.add(c.server.name, c.load, r)
		}
	}
	footprints, err := s.footprints(ctx, file)
	if err != nil {
		return err
	}
	own, err := countAllocations(ctx)
	if err != nil {
		return err
	}
	text := "Medians of " + fmt.Sprint(s.rounds) + " rounds. " + s.machine() + "\n\n" +
		figures(servers, got) + "\n" + memoryTable(footprints) + "\n" + verdicts(got, footprints, own)
	fmt.Fprintf(os.Stderr, "took %v\n", time.Since(began).Round(time.Second))
	return s.publish("bench", text)
}

// startAll starts everyone who is compared.
func (s *suite) startAll(ctx context.Context, file string) ([]*server, error) {
	starts := []func() (*server, error){
		func() (*server, error) { return s.startFloor(ctx, floorName) },
		func() (*server, error) { return s.startFloor(ctx, bareName) },
		func() (*server, error) { return s.startOurs(ctx, embedded, file, "") },
		func() (*server, error) { return s.startOnRedis(ctx, overTCP, file, false) },
		func() (*server, error) { return s.startOnRedis(ctx, overUnix, file, true) },
	}
	if binary := os.Getenv("PEER_ERL"); binary != "" {
		starts = append(starts, func() (*server, error) { return s.startERL(ctx, binary) })
	}
	if binary := os.Getenv("PEER_LIMITADOR"); binary != "" {
		starts = append(starts,
			func() (*server, error) { return s.startLimitador(ctx, binary, false) },
			func() (*server, error) { return s.startLimitador(ctx, binary, true) })
	}
	var servers []*server
	for _, start := range starts {
		v, err := start()
		if err != nil {
			return nil, err
		}
		servers = append(servers, v)
	}
	return servers, nil
}

// The names of floors and of our own.
const (
	floorName = "floor"
	bareName  = "gRPC alone, set up as ours"
	embedded  = "embedded store"
	overTCP   = "Redis over TCP"
	overUnix  = "Redis over a unix socket"
	aloneName = "Redis alone"
)

// fillEach is the longest that a key may take while a table is filled, ten times what it should.
const fillEach = 100 * time.Microsecond

// fill asks for every key once, so that what is measured later is a table that is full, and limits that are spent.
func (s *suite) fill(ctx context.Context, l bench.Load, kind string) error {
	most := time.Minute + time.Duration(l.Keys)*fillEach
	l.Spread, l.Count, l.Rate, l.Duration, l.Warm = bench.Sequence, int64(l.Keys), 0, most, 0
	l.Streams = 32
	if kind == hot {
		l.Count = 1000
	}
	r, err := bench.Run(ctx, l)
	if err == nil && r.Answers < l.Count {
		err = fmt.Errorf("filled %d keys of %d in %v", r.Answers, l.Count, most)
	}
	return err
}
