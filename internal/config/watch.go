package config

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// places says where files are looked for.
type places struct {
	inside []string // directories in which everything matters
	names  []string // single paths that matter, among whatever else their directories hold
}

// placesOf returns the places of the rules at path, as Read takes it.
func placesOf(path string) places {
	path = filepath.Clean(path)
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		// In a Kubernetes volume the file is a link through ..data, and only that is replaced.
		return places{names: []string{path, filepath.Join(filepath.Dir(path), "..data")}}
	}
	// The directory may be a link that is replaced, or be gone and come back: its name matters too.
	return places{inside: []string{path}, names: []string{path}}
}

// directories lists what has to be watched for the events of all places.
func (p places) directories() []string {
	dirs := slices.Clone(p.inside)
	for _, name := range p.names {
		dirs = append(dirs, filepath.Dir(name))
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// watcher has the system tell of changes in places. Without the system's help it tells of none.
type watcher struct {
	events chan fsnotify.Event
	errors chan error

	system  *fsnotify.Watcher // nil: the system does not help
	log     *slog.Logger
	places  places
	watched map[string]os.FileInfo // the directories, as they were when the watch began
}

func newWatcher(log *slog.Logger) *watcher {
	w := &watcher{log: log, watched: map[string]os.FileInfo{}}
	system, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("changes of files are only seen when they are polled", "error", err)
		return w
	}
	w.system, w.events, w.errors = system, system.Events, system.Errors
	return w
}

func (w *watcher) close() {
	if w.system != nil {
		_ = w.system.Close() // it has nothing left to say
	}
}

// update watches p from now on, also where a directory is another one under its old name.
func (w *watcher) update(p places) {
	w.places = p
	if w.system == nil {
		return
	}
	dirs, alive := p.directories(), w.system.WatchList()
	for dir := range w.watched {
		if !slices.Contains(dirs, dir) {
			w.drop(dir)
		}
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		old := w.watched[dir]
		if err == nil && old != nil && os.SameFile(old, info) && slices.Contains(alive, dir) {
			continue
		}
		w.drop(dir)
		if err != nil {
			continue // gone; reading says so
		}
		if err := w.system.Add(dir); err != nil {
			w.log.Warn("changes in a directory are only seen when it is polled", "directory", dir, "error", err)
			continue
		}
		w.watched[dir] = info
	}
}

func (w *watcher) drop(dir string) {
	if w.watched[dir] != nil {
		_ = w.system.Remove(dir) // an error says that the watch is gone already
		delete(w.watched, dir)
	}
}

// concerns reports whether an event may have changed what is read.
func (w *watcher) concerns(e fsnotify.Event) bool {
	return slices.Contains(w.places.names, e.Name) || slices.Contains(w.places.inside, filepath.Dir(e.Name))
}
