package transport

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/engine"
)

// generatedResponse is what v should be encoded as: the obvious conversion, for comparison.
func generatedResponse(v *engine.Verdict) *rlsv3.RateLimitResponse {
	code := func(over bool) rlsv3.RateLimitResponse_Code {
		if over {
			return rlsv3.RateLimitResponse_OVER_LIMIT
		}
		return rlsv3.RateLimitResponse_OK
	}
	m := &rlsv3.RateLimitResponse{OverallCode: code(v.Over)}
	for _, s := range v.Statuses {
		d := &rlsv3.RateLimitResponse_DescriptorStatus{Code: code(s.Over), LimitRemaining: s.Remaining}
		if s.HasLimit {
			unit := strings.ToUpper(s.Unit.String())
			d.CurrentLimit = &rlsv3.RateLimitResponse_RateLimit{
				RequestsPerUnit: s.Requests,
				Unit:            rlsv3.RateLimitResponse_RateLimit_Unit(rlsv3.RateLimitResponse_RateLimit_Unit_value[unit]),
				Name:            strings.ToValidUTF8(s.Name, "\uFFFD"),
			}
			if s.Multiplier > 1 {
				d.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(s.Multiplier)
			}
			if s.Reset != bucket.Never {
				d.DurationUntilReset = durationpb.New(s.Reset)
				if v.Envoy && s.Reset%time.Second > 0 {
					d.DurationUntilReset = durationpb.New(s.Reset.Truncate(time.Second) + time.Second)
				}
			}
		}
		m.Statuses = append(m.Statuses, d)
	}
	return m
}

func unmarshalled(t testing.TB, b []byte) *rlsv3.RateLimitResponse {
	t.Helper()
	m := new(rlsv3.RateLimitResponse)
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatalf("our answer: %v", err)
	}
	return m
}

func TestEncodeVerdict(t *testing.T) {
	t.Parallel()
	limited := engine.Status{
		HasLimit: true, Name: "login", Requests: 5, Unit: bucket.Minute, Multiplier: 1,
		Remaining: 3, Reset: 1500 * time.Millisecond,
	}
	with := func(change func(*engine.Status)) engine.Status {
		s := limited
		change(&s)
		return s
	}
	tests := map[string]engine.Verdict{
		"no descriptors":    {},
		"no limit":          {Statuses: []engine.Status{{}}},
		"unlimited":         {Statuses: []engine.Status{{Unlimited: true, Remaining: math.MaxUint32}}},
		"within":            {Statuses: []engine.Status{limited}},
		"unnamed":           {Statuses: []engine.Status{with(func(s *engine.Status) { s.Name = "" })}},
		"over":              {Over: true, Statuses: []engine.Status{with(func(s *engine.Status) { s.Over, s.Remaining = true, 0 }), {}}},
		"never passes":      {Over: true, Statuses: []engine.Status{with(func(s *engine.Status) { s.Over, s.Requests, s.Reset = true, 0, bucket.Never })}},
		"untouched":         {Statuses: []engine.Status{with(func(s *engine.Status) { s.Reset = 0 })}},
		"profile envoy":     {Envoy: true, Statuses: []engine.Status{limited, with(func(s *engine.Status) { s.Reset = 60 * time.Second })}},
		"multiplier":        {Statuses: []engine.Status{with(func(s *engine.Status) { s.Multiplier = 5 })}},
		"a name that moves": {Statuses: []engine.Status{with(func(s *engine.Status) { s.Name = strings.Repeat("n", 200) })}},
		"a longer one":      {Statuses: []engine.Status{with(func(s *engine.Status) { s.Name = strings.Repeat("n", 70_000) })}},
		"a name not UTF-8":  {Statuses: []engine.Status{with(func(s *engine.Status) { s.Name = "caf\xe9" })}},
		"shadow":            {WouldDeny: true, Statuses: []engine.Status{with(func(s *engine.Status) { s.Over = true })}},
		"ten years":         {Statuses: []engine.Status{with(func(s *engine.Status) { s.Unit, s.Multiplier, s.Reset = bucket.Year, 10, 87600*time.Hour })}},
	}
	for u := bucket.Second; u <= bucket.Year; u++ {
		tests["unit "+u.String()] = engine.Verdict{Statuses: []engine.Status{with(func(s *engine.Status) { s.Unit = u })}}
	}
	for name, v := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := unmarshalled(t, appendVerdict(nil, &v))
			if diff := cmp.Diff(generatedResponse(&v), got, protocmp.Transform()); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEncodeRefusal(t *testing.T) {
	t.Parallel()
	got := unmarshalled(t, appendRefusal(nil, 3))
	want := &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OVER_LIMIT}
	for range 3 {
		want.Statuses = append(want.Statuses, &rlsv3.RateLimitResponse_DescriptorStatus{Code: rlsv3.RateLimitResponse_OVER_LIMIT})
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("response (-want +got):\n%s", diff)
	}
}

// randomVerdict draws a verdict with the given texts in it.
func randomVerdict(r *rand.Rand, name, path string) *engine.Verdict {
	edge := func() uint32 { return [...]uint32{0, 1, 127, 128, 1 << 20, math.MaxUint32}[r.IntN(6)] }
	wait := func() time.Duration {
		return [...]time.Duration{0, 1, time.Second, time.Duration(r.Int64N(int64(time.Hour))), 87600 * time.Hour, bucket.Never}[r.IntN(6)]
	}
	coin := func() bool { return r.IntN(2) == 0 }
	v := &engine.Verdict{Over: coin(), WouldDeny: coin(), Envoy: coin(), Nearest: -1}
	for i := range r.IntN(5) {
		s := engine.Status{
			Over: coin(), Path: path, HasLimit: coin(), Requests: edge(), Unit: bucket.Unit(1 + r.IntN(7)), Multiplier: 1 + edge()/2,
			Quota: int64(edge()), Window: wait(), Unpaid: coin(), Remaining: edge(), Reset: wait(), RetryAfter: wait(),
		}
		if coin() {
			s.Name = name
		}
		if v.Nearest < 0 && s.HasLimit {
			v.Nearest = i
		}
		v.Statuses = append(v.Statuses, s)
	}
	return v
}

// FuzzEncode holds that generated code decodes every answer, to what was meant.
func FuzzEncode(f *testing.F) {
	f.Add(uint64(1), "login", "path_/login.remote_address")
	f.Add(uint64(2), "", "\xff\xfe")
	f.Add(uint64(3), strings.Repeat("é", 100), "a\r\nb")
	f.Fuzz(func(t *testing.T, seed uint64, name, path string) {
		v := randomVerdict(rand.New(rand.NewPCG(seed, 0)), name, path)
		got := unmarshalled(t, appendVerdict(nil, v))
		if diff := cmp.Diff(generatedResponse(v), got, protocmp.Transform()); diff != "" {
			t.Fatalf("response (-want +got):\n%s", diff)
		}
	})
}

// sink keeps what a benchmark makes, so that it is made.
var sink []byte

func BenchmarkEncode(b *testing.B) {
	v := &engine.Verdict{Statuses: []engine.Status{{
		HasLimit: true, Name: "login", Requests: 5, Unit: bucket.Minute, Multiplier: 1, Remaining: 3, Reset: time.Second,
	}}}
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := proto.Marshal(generatedResponse(v)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			sink = appendVerdict(make([]byte, 0, 64), v)
		}
	})
}
