package storetest

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// algorithms is what is particular to one algorithm: exact numbers, from the examples that explain it.
var algorithms = map[string]func(*world){
	"TokenBucketBurst": func(w *world) {
		// 100 at once, then 20 of each 50 a second; full again after 5 s.
		b := w.bucket(bucket.Config{Hits: 20, Unit: bucket.Second, Burst: 100})
		w.expectOne("the burst", with(b, 100), store.Decision{Allowed: true, Granted: 100, ResetAfter: 5 * time.Second})
		w.expectOne("empty", b, store.Decision{RetryAfter: 50 * time.Millisecond, ResetAfter: 5 * time.Second})
		for range 5 {
			w.wait(time.Second)
			if got := w.admits(b, 50); got != 20 {
				w.Errorf("50 in a second: got %d admitted, want 20", got)
			}
		}
		w.wait(5*time.Second - time.Microsecond)
		w.remains("1 µs before full", b, 99)
		w.wait(time.Microsecond)
		w.remains("full", b, 100)
	},
	"C20TokenBucketWaits": func(w *world) {
		b := w.bucket(bucket.Config{Hits: 2, Unit: bucket.Second})
		w.expectOne("untouched", with(b, 0), store.Decision{Allowed: true, Remaining: 2})
		w.expectOne("first", b, store.Decision{Allowed: true, Granted: 1, Remaining: 1, ResetAfter: 500 * time.Millisecond})
		w.expectOne("second", b, store.Decision{Allowed: true, Granted: 1, ResetAfter: time.Second})
		w.expectOne("third", b, store.Decision{RetryAfter: 500 * time.Millisecond, ResetAfter: time.Second})
		w.wait(200 * time.Millisecond)
		w.expectOne("at 0.2 s", b, store.Decision{RetryAfter: 300 * time.Millisecond, ResetAfter: 800 * time.Millisecond})
		w.wait(300 * time.Millisecond)
		w.expectOne("at 0.5 s", b, store.Decision{Allowed: true, Granted: 1, ResetAfter: time.Second})
	},
	"C59LowRates": func(w *world) {
		b := w.bucket(bucket.Config{Hits: 6, Unit: bucket.Minute, Burst: 1})
		for range 3 {
			w.expectOne("one each 10 s", b, store.Decision{Allowed: true, Granted: 1, ResetAfter: 10 * time.Second})
			w.expectOne("no second", b, store.Decision{RetryAfter: 10 * time.Second, ResetAfter: 10 * time.Second})
			w.wait(10 * time.Second)
		}
		b = w.bucket(bucket.Config{Hits: 7, Unit: bucket.Week})
		w.take(with(b, 7))
		w.expectOne("7 a week", b, store.Decision{RetryAfter: 24 * time.Hour, ResetAfter: 7 * 24 * time.Hour})
		b = w.bucket(bucket.Config{Algorithm: bucket.GCRA, Hits: 1, Unit: bucket.Month})
		w.take(b)
		w.expectOne("1 a month", b, store.Decision{RetryAfter: 30 * 24 * time.Hour, ResetAfter: 30 * 24 * time.Hour})
	},
	"C62GCRAOverManyPeriods": func(w *world) {
		b := w.bucket(bucket.Config{Algorithm: bucket.GCRA, Hits: 3, Unit: bucket.Second})
		got := 0
		for range 100 {
			got += w.admits(b, 1)
			w.wait(100 * time.Millisecond)
		}
		if got < 32 || got > 33 {
			w.Errorf("10 a second for 10 s on 3 a second: got %d admitted, want 32 or 33", got)
		}
	},
	"FixedWindow": func(w *world) {
		b := w.bucket(bucket.Config{Algorithm: bucket.FixedWindow, Hits: 100, Unit: bucket.Minute})
		w.wait(59 * time.Second)
		w.expectOne("at the end of a window", with(b, 100), store.Decision{Allowed: true, Granted: 100, ResetAfter: time.Second})
		w.expectOne("over", b, store.Decision{RetryAfter: time.Second, ResetAfter: time.Second})
		w.wait(time.Second) // 200 around an edge
		w.expectOne("the next window", with(b, 100), store.Decision{Allowed: true, Granted: 100, ResetAfter: time.Minute})
	},
	"SlidingWindow": func(w *world) {
		b := w.bucket(bucket.Config{Algorithm: bucket.SlidingWindow, Hits: 100, Unit: bucket.Minute})
		w.take(with(b, 80))
		w.wait(90 * time.Second)
		w.take(with(b, 30))
		w.remains("80 before, 30 now, at half a window: 70 used", b, 30)
		b = w.bucket(bucket.Config{Algorithm: bucket.SlidingWindow, Hits: 100, Unit: bucket.Minute})
		w.wait(30 * time.Second) // a whole minute since epoch: another window begins
		w.take(with(b, 80))
		w.wait(75 * time.Second)
		w.take(with(b, 30))
		w.remains("80 before, 30 now, at a quarter: 90 used", b, 10)
	},
	"SlidingLog": func(w *world) {
		b := w.bucket(bucket.Config{Algorithm: bucket.SlidingLog, Hits: 5, Unit: bucket.Minute})
		for i := range 5 {
			w.take(b)
			w.remains("spending", b, int64(4-i))
			w.wait(10 * time.Second)
		}
		newest := 50 * time.Second // until it is forgotten
		for range 5 {              // each hit comes back a minute after it was spent
			w.expectOne("full log", b, store.Decision{RetryAfter: 10 * time.Second, ResetAfter: newest})
			w.wait(10 * time.Second)
			newest = time.Minute
			w.expectOne("the oldest is gone", b, store.Decision{Allowed: true, Granted: 1, ResetAfter: time.Minute})
		}
	},
	"C64CalendarMonth": func(w *world) {
		w.wait(24*time.Hour - 30*time.Second) // 29 February, 23:59:30
		b := w.bucket(bucket.Config{Algorithm: bucket.FixedWindow, Hits: 2, Unit: bucket.Month, Calendar: time.UTC})
		w.expectOne("at the end of February", with(b, 2), store.Decision{Allowed: true, Granted: 2, ResetAfter: 30 * time.Second})
		w.expectOne("over", b, store.Decision{RetryAfter: 30 * time.Second, ResetAfter: 30 * time.Second})
		w.wait(30 * time.Second)
		w.expectOne("March", b, store.Decision{Allowed: true, Granted: 1, Remaining: 1, ResetAfter: 31 * 24 * time.Hour})
	},
	"CalendarDayAcrossSummerTime": func(w *world) {
		zone, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			w.Fatal(err)
		}
		b := w.bucket(bucket.Config{Algorithm: bucket.FixedWindow, Hits: 1, Unit: bucket.Day, Calendar: zone})
		w.wait(time.Date(2028, time.March, 26, 0, 0, 0, 0, zone).Sub(epoch))
		w.expectOne("the day of 23 hours", b, store.Decision{Allowed: true, Granted: 1, ResetAfter: 23 * time.Hour})
		w.wait(23*time.Hour - time.Microsecond)
		w.expectOne("its last microsecond", b, store.Decision{RetryAfter: time.Microsecond, ResetAfter: time.Microsecond})
		w.wait(time.Microsecond)
		w.expectOne("the next day", b, store.Decision{Allowed: true, Granted: 1, ResetAfter: 24 * time.Hour})
	},
	"LeakyBucketWithoutQueue": func(w *world) {
		b := w.bucket(bucket.Config{Algorithm: bucket.LeakyBucket, Hits: 10, Unit: bucket.Second, Burst: 3})
		w.expectOne("the burst", with(b, 3), store.Decision{Allowed: true, Granted: 3, ResetAfter: 300 * time.Millisecond})
		w.expectOne("over", b, store.Decision{RetryAfter: 100 * time.Millisecond, ResetAfter: 300 * time.Millisecond})
	},
	"LeakyBucketQueue": func(w *world) {
		b := w.bucket(bucket.Config{Algorithm: bucket.LeakyBucket, Hits: 10, Unit: bucket.Second, Burst: 5, MaxDelay: 300 * time.Millisecond})
		b.MaxDelay = time.Second // the limit's own is shorter and holds
		for i := range 4 {
			delay := time.Duration(i) * 100 * time.Millisecond
			if d := w.take(b)[0]; !d.Allowed || d.Granted != 1 || d.Delay != delay {
				w.Errorf("hit %d: got %+v, want a delay of %v", i+1, d, delay)
			}
		}
		refused := w.take(b)[0]
		if refused.Allowed || refused.Delay != 0 || refused.RetryAfter != 100*time.Millisecond {
			w.Errorf("a delay past the longest: got %+v, want a refusal for 100ms", refused)
		}
		w.honest("queue", b, refused)
		impatient := b
		impatient.MaxDelay = 50 * time.Millisecond
		if d := w.take(impatient)[0]; d.Allowed || d.Granted != 0 {
			w.Errorf("a caller that waits 50ms at most: got %+v, want a refusal", d)
		}
	},
	"QueuePlaceGivenBack": func(w *world) {
		b := w.bucket(bucket.Config{Algorithm: bucket.LeakyBucket, Hits: 1, Unit: bucket.Second, Burst: 3, MaxDelay: 10 * time.Second})
		b.MaxDelay = 10 * time.Second
		w.take(b)
		second := w.take(b)[0]
		back := with(b, -1)
		back.Tick = second.Tick
		w.take(back)
		if d := w.take(b)[0]; !d.Allowed || d.Delay != time.Second {
			w.Errorf("after a caller left the queue: got %+v, want a delay of 1s", d)
		}
	},
	"DebtReport": func(w *world) {
		b := w.bucket(bucket.Config{Hits: 10, Unit: bucket.Minute, Debt: 5})
		report := with(b, 12)
		report.Book = store.BookAlways
		if d := w.take(report)[0]; d.Granted != 12 || d.Remaining != 0 {
			w.Errorf("a report of 12 on 10: got %+v, want 12 booked", d)
		}
		if d := w.take(b)[0]; d.Allowed || d.RetryAfter != 18*time.Second {
			w.Errorf("2 overdrawn: got %+v, want a refusal for 18s", d)
		}
		if d := w.take(report)[0]; d.Granted != 3 {
			w.Errorf("a report past the debt: got %+v, want 3 booked", d)
		}
		if d := w.take(b)[0]; d.Allowed || d.RetryAfter != 36*time.Second {
			w.Errorf("5 overdrawn: got %+v, want a refusal for 36s", d)
		}
	},
}
