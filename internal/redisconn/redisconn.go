package redisconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// dialTimeout bounds a new connection, TLS included.
const dialTimeout = 2 * time.Second

// Options says how Redis is reached. Only URL must be given. What a file holds beats the URL; every file is read again for
// each new connection, so that what is rotated is used by the next one. A newline at a file's end is not part of it.
type Options struct {
	URL string // see docs/redis.md for its forms

	UsernameFile         string // the user's name
	PasswordFile         string // and password
	SentinelUsernameFile string // of the Sentinels' own user
	SentinelPasswordFile string

	CAFile     string // PEM certificates to trust instead of the system's; implies TLS
	CertFile   string // PEM certificate to present, with KeyFile; implies TLS
	KeyFile    string
	ServerName string // what certificates must name; "": the host that is dialled
	AnyName    bool   // whom certificates name is not looked at, only who signed them; implies TLS
	SkipVerify bool   // trusts any certificate: whoever is between sees the password
}

// Redis is how Redis is reached. Made by New; safe for concurrent use. It prints nothing of its secrets.
type Redis struct {
	target
	files     Options
	sentinels []*redis.Client
	closing   sync.Once
}

// quiet silences go-redis's own log, which is one a process: all it has to say comes back as errors.
var quiet = sync.OnceFunc(logging.Disable)

// New returns how Redis is reached by o. It does not wait for Redis. The error names the part of the URL or the file that
// is wrong, in one line and without any secret.
func New(o Options) (*Redis, error) {
	quiet()
	t, err := parse(o.URL)
	if err != nil {
		return nil, err
	}
	r := &Redis{target: *t, files: o}
	r.files.URL = ""
	if o.ServerName != "" {
		r.serverName = o.ServerName
	}
	if o.CAFile != "" || o.CertFile != "" || o.KeyFile != "" || o.ServerName != "" || o.AnyName || o.SkipVerify {
		r.tls = true
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("redis url: %w", err)
	}
	if r.kind != Sentinel && (o.SentinelUsernameFile != "" || o.SentinelPasswordFile != "") {
		return nil, errors.New("redis sentinel credentials: want a URL of redis-sentinel://")
	}
	if _, err := r.login(); err != nil {
		return nil, err
	}
	if _, err := r.sentinelLogin(); err != nil {
		return nil, err
	}
	if r.tls {
		if _, err := r.tlsConfig(""); err != nil {
			return nil, err
		}
	}
	if r.kind == Sentinel {
		r.openSentinels()
	}
	return r, nil
}

// Kind returns what answers at the URL's addresses.
func (r *Redis) Kind() Kind { return r.kind }

// Addrs returns the URL's addresses, at least one.
func (r *Redis) Addrs() []string { return r.addrs }

// Close closes the connections to Sentinels. A second call does nothing. Clients that Client and Node made are theirs to
// close who made them.
func (r *Redis) Close() error {
	var errs []error
	r.closing.Do(func() {
		for _, c := range r.sentinels {
			errs = append(errs, c.Close())
		}
	})
	return errors.Join(errs...)
}

// Format writes a name in place of secrets, whatever the verb.
func (*Redis) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "redisconn.Redis") }

// Node returns options for a client of the node at addr, which is not one of the Sentinels. They retry nothing: what was
// sent may have been applied. The caller may change them.
func (r *Redis) Node(addr string) *redis.Options {
	o := r.node(addr)
	o.DB = r.db
	o.CredentialsProviderContext = func(context.Context) (string, string, error) {
		l, err := r.login()
		return l.username, l.password, err
	}
	return o
}

func (r *Redis) node(addr string) *redis.Options {
	return &redis.Options{
		Network: r.network, Addr: addr, Dialer: r.dial,
		Protocol:                 2,  // no greeting beyond what the server's ACL must grant anyway
		MaxRetries:               -1, // what may have been applied is never sent again
		DialerRetries:            1,
		DialTimeout:              dialTimeout,
		PipelinePoolSize:         -1, // one pool for all
		DisableIdentity:          true,
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// dial connects, and greets by TLS where that is wanted.
func (r *Redis) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, addr)
	if err != nil || !r.tls {
		return conn, err
	}
	return r.secure(ctx, conn, addr)
}

func (r *Redis) login() (login, error) {
	return r.user.from("redis", r.files.UsernameFile, r.files.PasswordFile)
}

func (r *Redis) sentinelLogin() (login, error) {
	return r.sentinel.from("redis sentinel", r.files.SentinelUsernameFile, r.files.SentinelPasswordFile)
}

// from returns l with what the files hold, where there are any.
func (l login) from(whose, usernameFile, passwordFile string) (login, error) {
	var err error
	if usernameFile != "" {
		if l.username, err = readSecret(usernameFile); err != nil {
			return login{}, fmt.Errorf("%s username file: %w", whose, err)
		}
	}
	if passwordFile != "" {
		if l.password, err = readSecret(passwordFile); err != nil {
			return login{}, fmt.Errorf("%s password file: %w", whose, err)
		}
	}
	if l.username != "" && l.password == "" {
		return login{}, fmt.Errorf("%s user: want a password as well", whose)
	}
	return l, nil
}

// readSecret reads a file that holds one secret.
func readSecret(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if secret == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return secret, nil
}
