package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/admin"
	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/ledger"
	"github.com/ratelimitd/ratelimitd/internal/override"
)

// overridesFile holds the last overrides that were read from Redis, in the state directory.
const overridesFile = "overrides.json"

// reportChanges is how soon other nodes hear that something has changed here.
const reportChanges = time.Second

// people is what the process has for those who change things while it runs. The zero value has nothing.
type people struct {
	ledger    *ledger.Ledger // nil: nothing can be kept, and unkept says why
	unkept    string
	recorder  *config.Recorder // nil with ledger
	published *config.Published
	overrides *override.Keeper // nil with ledger
}

// newLedger opens the ledger: in Redis, or in the state directory of a process without.
func (a *App) newLedger() {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	o := ledger.Options{Node: fmt.Sprintf("%s/%d", host, os.Getpid()), Space: a.o.KeySpace, Poll: a.o.Reconcile, Heard: a.forget}
	switch {
	case a.conn != nil:
		client := a.conn.Client()
		a.undo.add("close the ledger's connections", func(context.Context) error { return client.Close() })
		a.people.ledger = ledger.NewRedis(client, o)
	case a.o.StateDir != "":
		l, err := ledger.OpenFile(a.o.StateDir, o)
		if err != nil {
			// Decisions are worth more than changes to them.
			a.people.unkept = "the audit log of --state-dir cannot be used: " + err.Error()
			a.log.Error("the audit log cannot be used: nothing can be changed while this process runs", "error", err)
			return
		}
		a.undo.add("close the ledger", func(context.Context) error { return l.Close() })
		a.people.ledger = l
	default:
		a.people.unkept = "this process has nowhere to keep changes and their audit log: want --redis-url, or --state-dir"
		return
	}
	a.people.recorder = config.NewRecorder(a.people.ledger, a.log)
}

// forget drops remembered denials: an override, a reset or a grant may have ended their reason.
func (a *App) forget() {
	if a.limiter != nil {
		a.limiter.ForgetAll()
	}
}

// newOverrides makes the keeper of overrides, with those that an earlier process left if Redis holds the others.
func (a *App) newOverrides() error {
	if a.people.ledger == nil {
		return nil
	}
	o := override.Options{
		Ledger: a.people.ledger, Registerer: a.reg, Logger: a.log,
		Apply: func(all []*override.Override) {
			a.engine.SetOverrides(all)
			a.forget()
		},
	}
	if a.conn != nil && a.o.StateDir != "" {
		path := filepath.Join(a.o.StateDir, overridesFile)
		o.Keep = func(text []byte) error { return config.ReplaceFile(path, text) }
		var err error
		if o.Kept, err = os.ReadFile(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			a.log.Error("overrides of an earlier start cannot be read", "error", err)
		}
	}
	var err error
	a.people.overrides, err = override.New(o)
	return err
}

// newAdmin makes what answers on the admin port: the pages, and the service.
func (a *App) newAdmin(pages *http.ServeMux) http.Handler {
	path, service := admin.New(admin.Options{
		Live: a.rules, Engine: a.engine, Rules: a.people.published, Publishes: a.o.RulesFromRedis,
		Ledger: a.people.ledger, Overrides: a.people.overrides, Unkept: a.people.unkept,
	}).Handler()
	pages.Handle("GET "+path, service) // of what has no side effects
	pages.Handle("POST "+path, service)
	access := admin.Access{
		EditorTokenFile: a.o.AdminTokenFile, ViewerTokenFile: a.o.AdminViewerTokenFile,
		Certificates: a.o.certificates(), Editors: a.o.AdminEditors, Anonymous: admin.Editor, Hosts: a.o.AdminHosts,
	}
	if host, _, err := net.SplitHostPort(a.o.AdminAddr); err != nil || !loopback(host) {
		access.Anonymous = admin.Reader
	}
	return admin.Guard(access, a.log, pages)
}

// startPeople follows what people change, here and on other nodes.
func (a *App) startPeople() {
	if a.people.ledger == nil {
		return
	}
	a.undo.add("stop hearing of changes", background(a.people.ledger.Follow))
	a.undo.add("stop keeping overrides", background(a.people.overrides.Run))
	a.undo.add("stop recording changes of the rules", background(a.people.recorder.Run))
	a.undo.add("stop reporting", background(a.report))
}

// report tells the other nodes which versions this one has.
func (a *App) report(ctx context.Context) {
	t := time.NewTicker(reportChanges)
	defer t.Stop()
	var last ledger.Report
	failing := false
	for due := time.Now(); ; {
		st := a.rules.Status()
		r := ledger.Report{
			Build: a.o.Build.Version, Hash: st.Hash, Origin: st.Origin, OriginVersion: st.OriginVersion, Error: st.Error,
			Seq: a.people.overrides.Seq(),
		}
		if now := time.Now(); r != last || !now.Before(due) {
			last, due = r, now.Add(ledger.ReportEvery)
			err := a.people.ledger.Report(ctx, r)
			if err != nil {
				last = ledger.Report{} // again soon
			}
			if err != nil && !failing && ctx.Err() == nil {
				a.log.Warn("other nodes do not hear of this one, trying on", "error", err)
			}
			failing = err != nil
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}
