package store

import (
	"slices"
	"sync"
)

// Late is the error of a Take that returned without an answer while its request was under way: a caller's time was over.
// What became of the request may still be heard of, by Then. Safe for concurrent use; made by NewLate.
type Late struct {
	why error

	mu    sync.Mutex
	ended bool
	out   []Decision
	err   error
	then  []func([]Decision, error)
}

// NewLate returns the error of a request that is late for the reason why, which wraps ErrUnavailable and not ErrUnsent.
func NewLate(why error) *Late { return &Late{why: why} }

// Error says why the caller did not wait.
func (l *Late) Error() string { return l.why.Error() }

// Unwrap returns why the caller did not wait.
func (l *Late) Unwrap() error { return l.why }

// Then has f called once with what Take would have written and returned, had its caller waited: at once if that is known,
// else by the goroutine that learns it, which calls the latest f first. So f must be quick, and it keeps the decisions as
// they are. They hold if err is nil only. A store that loses its connection says so by err; one that never hears anything never calls f.
func (l *Late) Then(f func(out []Decision, err error)) {
	l.mu.Lock()
	if !l.ended {
		l.then = append(l.then, f)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	f(l.out, l.err)
}

// End tells what became of the request. It is called once, by the store; it keeps out.
func (l *Late) End(out []Decision, err error) {
	l.mu.Lock()
	l.ended, l.out, l.err = true, out, err
	then := l.then
	l.then = nil
	l.mu.Unlock()
	for _, f := range slices.Backward(then) {
		f(out, err)
	}
}
