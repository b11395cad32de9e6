package redisconn

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Kind is what answers at a URL's addresses.
type Kind uint8

// The kinds.
const (
	Single   Kind = iota // one server, or whatever its name resolves to now
	Sentinel             // Sentinels, which say where the master is
	Cluster              // nodes of a Redis Cluster, which say where the others are
)

// A target is what a URL says.
type target struct {
	kind       Kind
	network    string   // "tcp" or "unix"
	addrs      []string // host:port, or the path of a socket
	master     string   // its name, as Sentinels know it
	db         int
	tls        bool
	user       login
	sentinel   login // of the Sentinels
	serverName string
}

// A login is a user of Redis; without a password there is none.
type login struct{ username, password string }

// form is what a scheme stands for.
type form struct {
	kind Kind
	tls  bool
	port string
}

var forms = map[string]form{
	"redis":           {Single, false, "6379"},
	"rediss":          {Single, true, "6379"},
	"redis-sentinel":  {Sentinel, false, "26379"},
	"rediss-sentinel": {Sentinel, true, "26379"},
	"redis-cluster":   {Cluster, false, "6379"},
	"rediss-cluster":  {Cluster, true, "6379"},
}

const wantForm = "want redis://[user:password@]host:port[/db], redis-sentinel://[user:password@]master@host:port,…[/db], " +
	"redis-cluster://[user:password@]host:port,…, each as rediss… for TLS, or unix:///path[?db=n]"

// parse reads a URL. An error names the part that is wrong and quotes nothing of it: where one character is out of place
// any part may be the password.
func parse(text string) (*target, error) {
	t, err := read(text)
	if err != nil {
		return nil, fmt.Errorf("redis url: %w", err)
	}
	return t, nil
}

func read(text string) (*target, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return nil, errors.New(wantForm)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return nil, errors.New("white space and control characters are written in percent-encoding, %20")
	}
	if strings.Contains(rest, "#") {
		return nil, errors.New("a # is written %23 in a user or password")
	}
	rest, query, _ := strings.Cut(rest, "?")
	t := &target{network: "tcp"}
	var err error
	switch f, known := forms[scheme]; {
	case scheme == "unix":
		err = t.readSocket(rest)
	case !known:
		return nil, errors.New(wantForm)
	default:
		t.kind, t.tls = f.kind, f.tls
		err = t.readHosts(rest, f.port)
	}
	if err != nil {
		return nil, err
	}
	if err := t.readQuery(query); err != nil {
		return nil, err
	}
	return t, t.check()
}

func (t *target) readSocket(rest string) error {
	userinfo, path := "", rest
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		userinfo, path = rest[:at], rest[at+1:]
	}
	if !strings.HasPrefix(path, "/") {
		return errors.New("socket: want an absolute path, unix:///path")
	}
	t.network, t.addrs = "unix", []string{path}
	var err error
	t.user, err = readUserinfo(userinfo)
	return err
}

// readHosts reads [user:password@][master@]host[:port],…[/db].
func (t *target) readHosts(rest, port string) error {
	authority, db, _ := strings.Cut(rest, "/")
	if err := t.readDB(db); err != nil {
		return err
	}
	userinfo, hosts := "", authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		userinfo, hosts = authority[:at], authority[at+1:]
	}
	if t.kind == Sentinel {
		name := userinfo
		userinfo = ""
		if at := strings.LastIndexByte(name, '@'); at >= 0 {
			userinfo, name = name[:at], name[at+1:]
		}
		var err error
		if t.master, err = url.PathUnescape(name); err != nil || t.master == "" {
			return errors.New("master: want the master's name before the hosts, redis-sentinel://master@host,…")
		}
	}
	var err error
	if t.user, err = readUserinfo(userinfo); err != nil {
		return err
	}
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := readHost(host, port)
		if err != nil {
			return err
		}
		t.addrs = append(t.addrs, addr)
	}
	if t.kind == Single && len(t.addrs) > 1 {
		return errors.New("hosts: want one; several belong to redis-sentinel:// or redis-cluster://")
	}
	return nil
}

// readUserinfo reads user:password, :password or user, percent-encoded.
func readUserinfo(s string) (login, error) {
	username, password, _ := strings.Cut(s, ":")
	var l login
	var err error
	if l.username, err = url.PathUnescape(username); err != nil {
		return login{}, errors.New("user: want a % as %25, as before two hexadecimal digits only")
	}
	if l.password, err = url.PathUnescape(password); err != nil {
		return login{}, errors.New("password: want a % as %25, as before two hexadecimal digits only")
	}
	return l, nil
}

// readHost reads host, host:port or [IPv6]:port.
func readHost(s, port string) (string, error) {
	bad := errors.New("host: want host:port, with a port from 1 to 65535 and IPv6 in brackets")
	host, own, err := net.SplitHostPort(s)
	if err == nil {
		port = own
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
		if strings.Contains(host, ":") && host == s {
			return "", bad
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", bad
	}
	if host == "" || strings.ContainsAny(host, " \t\r\n@/\\%[]") {
		return "", bad
	}
	return net.JoinHostPort(host, port), nil
}

func (t *target) readDB(s string) error {
	if s == "" {
		return nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return errors.New("database: want a number after the hosts, as in /0; in a user or password a / is written %2F")
	}
	t.db = int(n)
	return nil
}

// options are what a query may hold.
var options = []string{"db", "sentinel_password", "sentinel_username", "server_name", "tls"}

func (t *target) readQuery(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("options after ?: want name=value&…, percent-encoded; in a user or password a ? is written %3F")
	}
	for name, v := range values {
		if !slices.Contains(options, name) || len(v) != 1 {
			return fmt.Errorf("options after ?: want each of %s at most once", strings.Join(options, ", "))
		}
	}
	if values.Has("db") {
		if err := t.readDB(values.Get("db")); err != nil {
			return errors.New("option db: want a number")
		}
	}
	switch values.Get("tls") {
	case "":
	case "true":
		t.tls = true
	case "false":
		if t.tls {
			return errors.New("option tls: must not be false with a scheme of TLS")
		}
	default:
		return errors.New("option tls: want true or false")
	}
	t.serverName = values.Get("server_name")
	t.sentinel = login{values.Get("sentinel_username"), values.Get("sentinel_password")}
	return nil
}

// check refuses what would be ignored.
func (t *target) check() error {
	switch {
	case t.kind == Cluster && t.db != 0:
		return errors.New("database: a Redis Cluster has number 0 only")
	case t.kind != Sentinel && t.sentinel != login{}:
		return errors.New("options sentinel_username and sentinel_password: want a URL of redis-sentinel://")
	case t.network == "unix" && t.tls:
		return errors.New("option tls: a socket has no TLS")
	default:
		return nil
	}
}
