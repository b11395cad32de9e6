package storetest

import (
	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// voted returns c with its vote and booking replaced.
func voted(c store.Charge, v store.Vote, b store.Book) store.Charge {
	c.Vote, c.Book = v, b
	return c
}

// hourly returns a charge of one hit on a fresh fixed window of n hits an hour.
func (w *world) hourly(n int64) store.Charge {
	w.Helper()
	return w.bucket(bucket.Config{Algorithm: bucket.FixedWindow, Hits: n, Unit: bucket.Hour})
}

// requests is how the charges of one request decide and are booked together.
var requests = map[string]func(*world){
	"C07AllOrNothing": func(w *world) {
		for _, swapped := range []bool{false, true} {
			user, site := w.hourly(1), w.hourly(10)
			charges := []store.Charge{user, site}
			u, s := 0, 1
			if swapped {
				charges, u, s = []store.Charge{site, user}, 1, 0
			}
			got := w.take(charges...)
			if !got[u].Allowed || !got[s].Allowed || got[u].Remaining != 0 || got[s].Remaining != 9 {
				w.Errorf("swapped %t: got %+v, want both allowed with 0 and 9 remaining", swapped, got)
			}
			for range 3 {
				got = w.take(charges...)
				if got[u].Allowed || !got[s].Allowed || got[u].Remaining != 0 || got[s].Remaining != 9 || got[s].Granted != 0 {
					w.Errorf("swapped %t, over: got %+v, want the site uncharged at 9", swapped, got)
				}
			}
			w.remains("the limit that was fine", site, 9)
		}
	},
	"C16ShadowDecidesNothing": func(w *world) {
		for _, first := range []bool{true, false} {
			shadow, user := voted(w.hourly(1), store.VoteNone, store.BookIfAdmitted), w.hourly(2)
			charges := []store.Charge{shadow, user}
			if !first {
				charges = []store.Charge{user, shadow}
			}
			for i, want := range []bool{true, true, false} {
				got := w.take(charges...)
				if store.Admitted(charges, got) != want {
					w.Errorf("shadow first %t, request %d: got %+v, want admitted %t", first, i+1, got, want)
				}
			}
			w.remains("user", user, 0)
		}
	},
	"ShadowIsBookedOnlyIfAdmitted": func(w *world) {
		shadow, user := voted(w.hourly(10), store.VoteNone, store.BookIfAdmitted), w.hourly(1)
		w.take(shadow, user)
		w.take(shadow, user)
		w.remains("shadow after one admitted and one refused", shadow, 9)
	},
	"C25QuotaGroups": func(w *world) {
		tests := []struct {
			groups [2]store.Vote
			want   [4]bool
		}{
			{[2]store.Vote{store.VoteQuota, store.VoteQuota}, [4]bool{true, true, true, false}},
			{[2]store.Vote{store.VoteQuota, store.VoteQuota + 127}, [4]bool{true, false, false, false}},
		}
		for _, tt := range tests {
			charges := []store.Charge{
				voted(w.hourly(1), tt.groups[0], store.BookIfAdmitted),
				voted(w.hourly(3), tt.groups[1], store.BookIfAdmitted),
			}
			for i, want := range tt.want {
				got := w.take(charges...)
				if store.Admitted(charges, got) != want {
					w.Errorf("groups %v, request %d: got %+v, want admitted %t", tt.groups, i+1, got, want)
				}
			}
		}
	},
	"QuotaRefusedIsNotBooked": func(w *world) {
		a := voted(w.hourly(1), store.VoteQuota, store.BookIfAdmitted)
		b := voted(w.hourly(10), store.VoteQuota, store.BookIfAdmitted)
		w.take(a, b)
		got := w.take(a, b)
		if got[0].Allowed || got[0].Granted != 0 || !got[1].Allowed || got[1].Granted != 1 {
			w.Errorf("one of a group over: got %+v, want only the other booked", got)
		}
	},
	"EnvoyBooksWhatRefuses": func(w *world) {
		user := voted(w.hourly(2), store.VoteEnforce, store.BookWhenRefuses)
		site := voted(w.hourly(10), store.VoteEnforce, store.BookWhenRefuses)
		w.take(user, site)
		over := with(user, 5)
		if got := w.take(over, site); got[0].Allowed || got[0].Remaining != 0 || !got[1].Allowed || got[1].Granted != 0 {
			w.Errorf("5 of the 1 left: got %+v, want the refusing limit booked and the other spared", got)
		}
		w.remains("the limit that refused", user, 0)
		w.remains("the limit that was fine", site, 9)
	},
	"ReportsAreBookedThoughRefused": func(w *world) {
		tokens := voted(w.bucket(bucket.Config{Hits: 10, Unit: bucket.Hour, Debt: 20}), store.VoteEnforce, store.BookAlways)
		site, over := w.hourly(10), w.hourly(0)
		got := w.take(with(tokens, 4), site, over)
		if got[0].Granted != 4 || got[1].Granted != 0 || got[2].Granted != 0 {
			w.Errorf("refused by another limit: got %+v, want the report booked alone", got)
		}
		w.remains("the report", tokens, 6)
		w.remains("the limit that was fine", site, 10)
		got = w.take(with(tokens, 8), site)
		if got[0].Allowed || got[0].Granted != 8 || got[1].Granted != 0 {
			w.Errorf("refused by its own limit: got %+v, want the report booked alone", got)
		}
	},
	"RefundIsAdmittedByItself": func(w *world) {
		b, over := w.hourly(10), w.hourly(0)
		w.take(with(b, 5))
		if got := w.take(with(b, -2), w.hourly(1)); got[0].Granted != -2 || got[1].Granted != 1 {
			w.Errorf("a refund beside a charge: got %+v, want both booked", got)
		}
		if got := w.take(with(b, -1), over); got[0].Granted != 0 {
			w.Errorf("a refund in a refused request: got %+v, want nothing booked", got)
		}
		w.remains("after the refunds", b, 7)
	},
	"PeekBesideCharge": func(w *world) {
		b := w.hourly(1)
		got := w.take(with(b, 0), b)
		if !got[0].Allowed || !got[1].Allowed || got[1].Granted != 1 {
			w.Errorf("a peek before the last hit: got %+v, want both allowed", got)
		}
		b = w.hourly(1)
		got = w.take(b, with(b, 0))
		if !got[0].Allowed || got[1].Allowed || got[0].Granted != 0 {
			w.Errorf("a peek after the last hit: got %+v, want it refused, and the request with it", got)
		}
		w.remains("after the refused request", b, 1)
	},
	"DuplicateWithAnotherLimit": func(w *world) {
		// C11's kind: two limits that share a key count in one bucket; whoever gives them one key gets one bucket.
		a := w.bucket(bucket.Config{Hits: 10, Unit: bucket.Second})
		b := a
		b.Limit = w.limit(bucket.Config{Hits: 10, Unit: bucket.Minute})
		got := w.take(with(a, 4), with(b, 4))
		if !got[0].Allowed || !got[1].Allowed || got[1].Remaining != 2 {
			w.Errorf("4 and 4 of one bucket of 10: got %+v, want 2 remaining", got)
		}
	},
	"OrderOfDistinctBucketsDoesNotMatter": func(w *world) {
		sizes := []int64{5, 3, 8, 1, 4}
		for shift := range sizes {
			charges := make([]store.Charge, len(sizes))
			for i := range sizes {
				charges[i] = w.hourly(sizes[(i+shift)%len(sizes)])
			}
			for request := range int64(3) {
				for i, d := range w.take(charges...) {
					size := sizes[(i+shift)%len(sizes)]
					want := store.Decision{Allowed: size > request, Granted: 1, Remaining: size - 1}
					if request > 0 { // the smallest refuses them all
						want.Allowed, want.Granted = size > 1, 0
					}
					if d.Allowed != want.Allowed || d.Granted != want.Granted || d.Remaining != want.Remaining {
						w.Errorf("shift %d, request %d, limit %d: got %+v, want %+v", shift, request+1, size, d, want)
					}
				}
			}
		}
	},
}
