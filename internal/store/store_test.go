package store

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

func TestUnpaid(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		policy *bucket.Policy
		want   Decision
	}{
		{"no policy", nil, Decision{Allowed: true, Origin: Unavailable}},
		{"fail open", &bucket.Policy{}, Decision{Allowed: true, Origin: Unavailable}},
		{"local strict", &bucket.Policy{OnFailure: bucket.LocalStrict}, Decision{Origin: Unavailable}},
		{"fail closed", &bucket.Policy{OnFailure: bucket.FailClosed}, Decision{Origin: Unavailable}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, Unpaid(&Charge{Policy: tt.policy})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestAdmitted(t *testing.T) {
	t.Parallel()
	type charge struct {
		vote    Vote
		allowed bool
	}
	const group0, group1, last = VoteQuota, VoteQuota + 1, VoteQuota + 127
	tests := []struct {
		name    string
		charges []charge
		want    bool
	}{
		{"none", nil, true},
		{"one fits", []charge{{VoteEnforce, true}}, true},
		{"one refused", []charge{{VoteEnforce, false}}, false},
		{"second refused", []charge{{VoteEnforce, true}, {VoteEnforce, false}}, false},
		{"shadow refused", []charge{{VoteNone, false}, {VoteEnforce, true}}, true},
		{"C16 shadow hides no refusal", []charge{{VoteNone, true}, {VoteEnforce, false}}, false},
		{"quota alone refused", []charge{{group0, false}}, false},
		{"C25 one of a group has room", []charge{{group0, false}, {group0, true}}, true},
		{"C25 all of a group refused", []charge{{group0, false}, {group0, false}}, false},
		{"C25 room in another group is no help", []charge{{group0, false}, {group1, true}}, false},
		{"the last group", []charge{{last, false}, {group0, true}}, false},
		{"the last group has room", []charge{{last, false}, {last, true}}, true},
		{"groups 63 and 64 apart", []charge{{VoteQuota + 63, false}, {VoteQuota + 64, true}}, false},
		{"quota with room, enforced refused", []charge{{group0, true}, {VoteEnforce, false}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			charges := make([]Charge, len(tt.charges))
			decisions := make([]Decision, len(tt.charges))
			for i, c := range tt.charges {
				charges[i].Vote, decisions[i].Allowed = c.vote, c.allowed
			}
			if got := Admitted(charges, decisions); got != tt.want {
				t.Errorf("got %t, want %t", got, tt.want)
			}
		})
	}
}
