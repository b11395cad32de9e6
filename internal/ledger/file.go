package ledger

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"
)

// FileName is the audit log in a state directory.
const FileName = "audit.jsonl"

// OpenFile returns a ledger in a file of a directory, which is made if it is not there, for this process alone: another
// that has it open is an error. The file is the log; the settings are what its entries set. The error is a *BrokenError
// if the log is not what was written. A last line that was cut short is of a change that nobody was told was made: it goes.
func OpenFile(dir string, o Options) (*Ledger, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, FileName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	b := &fileBackend{f: f, fields: map[string]string{}}
	if err := lock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: in use by another process: %w", path, err), f.Close())
	}
	if err := b.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	if err := syncDir(dir); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return newLedger(b, o), nil
}

// VerifyFile is Verify for the file of a ledger that is not open, or is open elsewhere. It changes nothing.
func VerifyFile(path string) (*Verified, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := &fileBackend{fields: map[string]string{}}
	if _, err := b.replay(f); err != nil {
		return nil, err
	}
	return &Verified{First: min(b.seq, 1), Last: b.seq, Hash: b.hash, Entries: b.seq}, nil
}

// line is one line of the file: an entry, and the values it set.
type line struct {
	*Entry
	Values map[string]string `json:"values,omitempty"`
}

type fileBackend struct {
	mu     sync.Mutex
	f      *os.File
	size   int64 // of the lines that are on disk
	seq    int64
	hash   string
	fields map[string]string
	failed error // a write went wrong, and the file may hold half of it
}

// load reads the file, and cuts off a line that was not finished.
func (b *fileBackend) load() error {
	size, err := b.replay(b.f)
	if err != nil {
		return err
	}
	b.size = size
	if err := b.f.Truncate(size); err != nil {
		return err
	}
	return b.f.Sync()
}

// replay makes the state from the lines of r, and returns how many bytes the whole ones have.
func (b *fileBackend) replay(r io.Reader) (size int64, err error) {
	c := &chain{sets: map[string]string{}}
	err = scan(r, func(l *line, bytes int) error {
		if c.first == 0 && l.Seq != 1 {
			return &BrokenError{Seq: 1, Why: fmt.Sprintf("entry %d stands in its place", l.Seq)}
		}
		if err := c.add(l.Entry); err != nil {
			return err
		}
		for field, digest := range l.Sets {
			if value := l.Values[field]; value == "" && digest != "" || value != "" && Digest(value) != digest {
				return &BrokenError{Seq: l.Seq, Why: fmt.Sprintf("value of %q altered since it was written", field)}
			}
		}
		b.apply(l)
		size += int64(bytes)
		return nil
	})
	return size, err
}

// scan calls yield with every whole line.
func scan(r io.Reader, yield func(l *line, bytes int) error) error {
	in := bufio.NewReader(r)
	for n := int64(1); ; n++ {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		l := &line{Entry: new(Entry)}
		if err := json.Unmarshal(text, l); err != nil {
			return &BrokenError{Seq: n, Why: "not an entry: " + err.Error()}
		}
		// What is read over when an entry is read is no part of its hash: there must be nothing of the kind.
		if as, err := json.Marshal(l); err != nil || !bytes.Equal(append(as, '\n'), text) {
			return &BrokenError{Seq: n, Why: "altered since it was written"}
		}
		if err := yield(l, len(text)); err != nil {
			return err
		}
	}
}

func (b *fileBackend) apply(l *line) {
	b.seq, b.hash = l.Seq, l.Hash
	for field := range l.Sets {
		if value := l.Values[field]; value != "" {
			b.fields[field] = value
		} else {
			delete(b.fields, field)
		}
	}
}

func (b *fileBackend) state(context.Context) (State, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return State{Seq: b.seq, Hash: b.hash, Fields: maps.Clone(b.fields)}, nil
}

func (b *fileBackend) commit(_ context.Context, e *Entry, c *Change) (bool, error) {
	if len(c.Blobs) > 0 {
		return false, errors.New("large values are kept in Redis only")
	}
	l := &line{Entry: e, Values: map[string]string{}}
	for field, value := range c.Set {
		if value != "" {
			l.Values[field] = value
		}
	}
	text, err := json.Marshal(l)
	if err != nil {
		return false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed != nil {
		return false, b.failed
	}
	if b.seq != e.Seq-1 || b.hash != e.Prev {
		return false, nil
	}
	_, err = b.f.Write(append(text, '\n'))
	if err == nil {
		err = b.f.Sync()
	}
	if err != nil {
		// The line may be there in part. Take it away; if that fails too, nothing is to follow it.
		if b.f.Truncate(b.size) != nil {
			b.failed = fmt.Errorf("audit log cannot be written any more: %w", err)
		}
		return false, fmt.Errorf("write audit log: %w", err)
	}
	b.size += int64(len(text)) + 1
	b.apply(l)
	return true, nil
}

func (b *fileBackend) entries(_ context.Context, seq int64, n int, yield func(*Entry)) error {
	b.mu.Lock()
	size := b.size
	b.mu.Unlock()
	return scan(io.NewSectionReader(b.f, 0, size), func(l *line, _ int) error {
		if l.Seq >= seq && n > 0 {
			n--
			yield(l.Entry)
		}
		return nil
	})
}

func (b *fileBackend) blob(_ context.Context, digest string) (string, error) {
	return "", fmt.Errorf("value %.12s…: large values are kept in Redis only", digest)
}

func (b *fileBackend) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed = os.ErrClosed
	return b.f.Close()
}

// syncDir puts the names in a directory on disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
