package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	goproto "google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/bench"
)

// suite is one run.
type suite struct {
	children children
	binary   string // ratelimitd
	rounds   int
	slice    time.Duration // of measuring, each time
	seed     uint64
	scale    int    // growth: the most buckets
	page     string // where tables are written to, between marks; "": nowhere
	plots    string // the folder where curves are written to; "": nowhere
}

func main() {
	if len(os.Args) == 4 && (os.Args[1] == floorName || os.Args[1] == bareName) {
		fmt.Fprintln(os.Stderr, serveFloor(os.Args[1], os.Args[2], os.Args[3]))
		os.Exit(1)
	}
	s := &suite{}
	flag.StringVar(&s.binary, "ratelimitd", "bin/ratelimitd", "the `program` to measure")
	flag.IntVar(&s.rounds, "rounds", 5, "how often everything is measured, in an order of chance; at least 3")
	flag.DurationVar(&s.slice, "slice", 1500*time.Millisecond, "how long each time")
	flag.Uint64Var(&s.seed, "seed", rand.Uint64(), "seed of keys, moments and order")
	flag.IntVar(&s.scale, "buckets", 10_000_000, "growth: the most buckets")
	flag.StringVar(&s.page, "page", "", "write the tables into this `file` too, between its marks")
	flag.StringVar(&s.plots, "plots", "", "growth: write the curves into this `folder`")
	growth := flag.Bool("growth", false, "measure how cost grows, instead of what it is")
	flag.Parse()

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	run := s.compare
	if *growth {
		run = s.grow
	}
	if err := s.in(ctx, run); err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(1)
	}
}

// in runs do with a folder for what it starts, and ends all that it started.
func (s *suite) in(ctx context.Context, do func(context.Context) error) (err error) {
	if s.rounds < 3 {
		return fmt.Errorf("-rounds %d: want 3 or more", s.rounds)
	}
	for _, need := range []string{"redis-server", "redis-cli"} {
		if _, err := exec.LookPath(need); err != nil {
			return fmt.Errorf("%w: apt-get install redis-server", err)
		}
	}
	if s.binary, err = filepath.Abs(s.binary); err != nil {
		return err
	}
	if s.children.dir, err = os.MkdirTemp("", "ratelimitd-bench-"); err != nil {
		return err
	}
	defer func() {
		s.children.stop()
		if err == nil { // else the logs say more
			err = os.RemoveAll(s.children.dir)
		}
	}()
	return do(ctx)
}

// message returns a request of one descriptor a key.
func (s *suite) message(keys ...string) bench.Message {
	r := &rlsv3.RateLimitRequest{Domain: "bench"}
	for _, k := range keys {
		value := bench.Mark
		if k == "hot" {
			value = "hot"
		}
		r.Descriptors = append(r.Descriptors, &ratelimitv3.RateLimitDescriptor{
			Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: k, Value: value}},
		})
	}
	data, err := goproto.Marshal(r)
	if err != nil {
		panic(err) // a few short strings
	}
	m, err := bench.NewMessage(data)
	if err != nil {
		panic(err) // as above
	}
	return m
}

// write writes a file of rules and returns its path.
func (s *suite) write(name, text string) (string, error) {
	path := filepath.Join(s.children.dir, name)
	return path, os.WriteFile(path, []byte(text), 0o644)
}

// publish prints text, and writes it into the page between the marks of a section.
func (s *suite) publish(section, text string) error {
	fmt.Println(text)
	if s.page == "" {
		return nil
	}
	data, err := os.ReadFile(s.page)
	if err != nil {
		return err
	}
	begin, end := "<!-- generated: "+section+" -->\n", "<!-- end: "+section+" -->"
	before, rest, ok := strings.Cut(string(data), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return errors.New(s.page + ": no marks of " + section)
	}
	return os.WriteFile(s.page, []byte(before+begin+"\n"+text+"\n"+end+after), 0o644)
}

// machine says where and when figures were taken.
func (s *suite) machine() string {
	line := func(argv ...string) string {
		out, err := exec.Command(argv[0], argv[1:]...).Output()
		if err != nil {
			return "unknown"
		}
		return strings.TrimSpace(string(out))
	}
	cpus := line("nproc")
	load := "unknown"
	if data, err := os.ReadFile("/proc/loadavg"); err == nil {
		load = strings.Join(strings.Fields(string(data))[:3], " ")
	}
	redis := strings.Fields(line("redis-server", "--version") + " - - -")[2]
	return fmt.Sprintf("%s, %s cores, Linux %s, %s, Redis %s; load average (1, 5, 15 minutes) at the end %s, what is measured included; seed %d.",
		time.Now().UTC().Format("2006-01-02 15:04 MST"), cpus, line("uname", "-r"), line("go", "env", "GOVERSION"),
		strings.TrimPrefix(redis, "v="), load, s.seed)
}
