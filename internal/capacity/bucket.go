package capacity

import (
	"errors"
	"fmt"
	"math"
)

// Bucket is a token bucket under a stream of requests of one hit each. All must be positive.
type Bucket struct {
	Burst    int     // hits it holds when full
	Rate     float64 // hits that come back, a second
	Requests float64 // a second, that ask for one
}

// Behaviour is what a bucket does to its stream.
type Behaviour struct {
	Load      float64 `json:"load"`             // requests ÷ rate
	Sustained float64 `json:"sustained"`        // requests a second that pass in the long run
	Rejected  float64 `json:"rejected"`         // share of the requests that are refused in the long run, of random (Poisson) arrivals
	Steady    float64 `json:"rejected_if_even"` // the same of evenly spaced arrivals: 1 − rate ÷ requests, or 0
	Drain     float64 `json:"drain_seconds"`    // until a full bucket is empty; 0 if it never is
	Refill    float64 `json:"refill_seconds"`   // until an empty bucket is full, if nobody asks
}

// maxBurst bounds the work of Behaviour.
const maxBurst = 1_000_000

// Behaviour returns what b does. The error says which number makes no sense.
//
// With random arrivals a bucket is a queue: what is missing from it is work, each admitted request adds one hit of it, rate
// of it is done a second, and who would bring more than burst is turned away. That is M/D/1/K with K = burst, whose loss is
// 1 − 1/(π₀ + ρ) (Takagi, Queueing Analysis, volume 2, section 5.1), π₀ being the share of departures that leave it empty.
func (b Bucket) Behaviour() (Behaviour, error) {
	err := errors.Join(positive("rate", b.Rate, 1e12), positive("requests", b.Requests, 1e12))
	if b.Burst < 1 || b.Burst > maxBurst {
		err = errors.Join(err, fmt.Errorf("burst %d: want 1 to %d", b.Burst, maxBurst))
	}
	if err != nil {
		return Behaviour{}, err
	}
	rho := b.Requests / b.Rate
	v := Behaviour{Load: rho, Refill: float64(b.Burst) / b.Rate}
	if rho > 1 {
		v.Steady = 1 - 1/rho
		v.Drain = float64(b.Burst) / (b.Requests - b.Rate)
	}
	v.Rejected = max(0, 1-1/(departsEmpty(rho, b.Burst)+rho))
	v.Sustained = b.Requests * (1 - v.Rejected)
	return v, nil
}

// departsEmpty returns π₀ of M/D/1/K: the share of departures that leave nobody behind.
//
// Between the states {0…n} and those above, as many steps go up as down: π(n+1)·a(0) = π(0)·A(n) + Σ π(k)·A(n+1−k) for
// k = 1…n, where a(0) is the chance of no arrival during a service and A(j) that of more than j. All terms are positive, so
// nothing is lost to cancellation.
func departsEmpty(rho float64, k int) float64 {
	switch {
	case k == 1:
		return 1 // there is nobody else to leave
	case rho > 30:
		return 0 // it is below e^-29
	}
	tails := poissonTails(rho)
	none := math.Exp(-rho)
	q := make([]float64, 1, len(tails)+1) // π/π₀ of the latest states, the newest last
	q[0] = 1
	sum, scale := 1.0, 1.0 // scale is what 1 of q is worth, so that it never overflows
	for n := 0; n+1 < k; n++ {
		next := 0.0
		if n < len(tails) {
			next = tails[n] * scale
		}
		for i := range q {
			state := n - (len(q) - 1) + i
			if j := n + 1 - state; state >= 1 && j < len(tails) {
				next += q[i] * tails[j]
			}
		}
		next /= none
		sum += next
		if len(q) > len(tails) {
			copy(q, q[1:])
			q = q[:len(q)-1]
		}
		q = append(q, next)
		if next > 1e200 {
			for i := range q {
				q[i] *= 1e-200
			}
			sum, scale = sum*1e-200, scale*1e-200
		}
		if next < sum*1e-17 {
			break // what follows is less still
		}
	}
	return scale / sum
}

// poissonTails returns the chances that a Poisson variable of the given mean exceeds 0, 1, 2, …, until they vanish.
func poissonTails(mean float64) []float64 {
	// From the far end, where they vanish, so that they are sums of small terms.
	n := int(mean+20*math.Sqrt(mean)) + 30
	p := make([]float64, n+1)
	p[0] = math.Exp(-mean)
	for i := 1; i <= n; i++ {
		p[i] = p[i-1] * mean / float64(i)
	}
	tails := make([]float64, n)
	for j, sum := n-1, 0.0; j >= 0; j-- {
		sum += p[j+1]
		tails[j] = sum
	}
	return tails
}
