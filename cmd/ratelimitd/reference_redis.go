package main

import (
	"net/url"
	"strings"
)

// redisURL puts the URL of redisconn together from what the reference says of Redis, "" if it names none. What is wrong
// is noted; nothing of a password gets into an error.
func (e *referenceEnv) redisURL() string {
	if !e.given("REDIS_URL") {
		return ""
	}
	where, scheme := e.text("REDIS_URL"), "redis"
	if e.bool("REDIS_TLS") {
		scheme = "rediss"
	}
	auth := userinfo(e.text("REDIS_AUTH"))
	switch strings.ToUpper(e.text("REDIS_TYPE")) {
	case "SINGLE":
		return e.singleURL(scheme, auth, where)
	case "SENTINEL":
		master, hosts, ok := strings.Cut(where, ",")
		if !ok {
			e.wrong("REDIS_URL", "want the master's name and one Sentinel or more, comma-separated")
			return ""
		}
		query := ""
		if s := e.text("REDIS_SENTINEL_AUTH"); s != "" {
			username, password, both := strings.Cut(s, ":")
			if !both {
				username, password = "", s
			}
			values := url.Values{"sentinel_password": {password}}
			if username != "" {
				values.Set("sentinel_username", username)
			}
			query = "?" + values.Encode()
		}
		return scheme + "-sentinel://" + auth + escape(master) + "@" + spaceless(hosts) + query
	case "CLUSTER":
		return scheme + "-cluster://" + auth + spaceless(where)
	default:
		e.wrong("REDIS_TYPE", "%q: want SINGLE, SENTINEL or CLUSTER", e.text("REDIS_TYPE"))
		return ""
	}
}

func (e *referenceEnv) singleURL(scheme, auth, where string) string {
	before, rest, isURL := strings.Cut(where, "://")
	switch {
	case isURL && before == "redis":
		if at := strings.LastIndexByte(rest, '@'); at >= 0 && auth != "" {
			rest = rest[at+1:]
		}
		return scheme + "://" + auth + rest
	case isURL:
		return where // one of our own, which says it all
	case strings.HasPrefix(where, "/"):
		return "unix://" + auth + where
	case e.text("REDIS_SOCKET_TYPE") == "tcp":
		return scheme + "://" + auth + where
	default:
		e.wrong("REDIS_URL", "want the path of a socket, or REDIS_SOCKET_TYPE=tcp")
		return ""
	}
}

// userinfo writes password or user:password as a URL has it.
func userinfo(auth string) string {
	username, password, both := strings.Cut(auth, ":")
	switch {
	case auth == "":
		return ""
	case !both:
		username, password = "", auth
	}
	return escape(username) + ":" + escape(password) + "@"
}

// escape writes any text so that no mark in it is one of the URL's.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

func spaceless(list string) string { return strings.ReplaceAll(list, " ", "") }
