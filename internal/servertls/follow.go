package servertls

import (
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	poll    = 10 * time.Second       // without being told of a change
	quiet   = 100 * time.Millisecond // after an event: the key is written beside the certificate, not with it
	sumSize = sha256.Size
)

func (s *Server) files() []string {
	files := []string{s.o.CertFile, s.o.KeyFile}
	if s.o.ClientCAFile != "" {
		files = append(files, s.o.ClientCAFile)
	}
	return files
}

// sum is of what the files hold; of one that cannot be read, of the reason.
func (s *Server) sum() (sum [sumSize]byte) {
	h := sha256.New()
	for _, file := range s.files() {
		data, err := os.ReadFile(file)
		if err != nil {
			data = []byte(err.Error())
		}
		one := sha256.Sum256(data)
		h.Write(one[:])
	}
	h.Sum(sum[:0])
	return sum
}

// follow calls look soon after anything has changed beside the files, and now and then without: a volume of Kubernetes
// replaces a link in their directory, not the files.
func (s *Server) follow(ctx context.Context, look func()) {
	var events <-chan fsnotify.Event
	var lost <-chan error
	if w, err := fsnotify.NewWatcher(); err != nil {
		s.log.Warn("changes of the certificate are only seen when it is polled", "error", err)
	} else {
		defer w.Close()
		events, lost = w.Events, w.Errors
		for _, file := range s.files() {
			if err := w.Add(filepath.Dir(file)); err != nil {
				s.log.Warn("changes of the certificate are only seen when it is polled", "error", err)
			}
		}
	}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	settled := time.NewTimer(0) // what changed before the watch began has no event
	defer settled.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			settled.Reset(quiet)
		case err := <-lost:
			s.log.Warn("certificates are looked at, since events are lost", "error", err)
			settled.Reset(quiet)
		case <-settled.C:
			look()
		case <-tick.C:
			look()
		}
	}
}
