package main

import (
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/app"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
)

// redisFlags say how Redis is reached.
type redisFlags struct {
	url, urlFile string
	conn         redisconn.Options // but for its URL
}

func (f *redisFlags) addTo(cmd *cobra.Command, purpose string) {
	flags := cmd.Flags()
	flags.StringVar(&f.url, "redis-url", "", purpose+" the Redis at this `URL` (redis://, rediss://, redis-sentinel://, redis-cluster://, unix://); better set by environment or file: other users can read a command line")
	flags.StringVar(&f.urlFile, "redis-url-file", "", "read --redis-url from this `file`")
	flags.StringVar(&f.conn.UsernameFile, "redis-username-file", "", "read the user's name from this `file`, again for every connection, instead of from the URL")
	flags.StringVar(&f.conn.PasswordFile, "redis-password-file", "", "read the password from this `file`, likewise")
	flags.StringVar(&f.conn.SentinelUsernameFile, "redis-sentinel-username-file", "", "read the Sentinels' user from this `file`, likewise")
	flags.StringVar(&f.conn.SentinelPasswordFile, "redis-sentinel-password-file", "", "read the Sentinels' password from this `file`, likewise")
	flags.StringVar(&f.conn.CAFile, "redis-ca-file", "", "trust the certificates in this PEM `file` instead of the system's; implies TLS")
	flags.StringVar(&f.conn.CertFile, "redis-cert-file", "", "show the certificate in this PEM `file`, with --redis-key-file; implies TLS")
	flags.StringVar(&f.conn.KeyFile, "redis-key-file", "", "PEM `file` of its key")
	flags.StringVar(&f.conn.ServerName, "redis-server-name", "", "the `name` that certificates of Redis must have, instead of the host's; implies TLS")
	flags.BoolVar(&f.conn.AnyName, "redis-any-name", false, "take certificates of an authority that is trusted whatever they name; implies TLS")
	flags.BoolVar(&f.conn.SkipVerify, "redis-skip-verify", false, "trust any certificate: whoever is between sees the password; implies TLS")
	secrets(flags, "redis-url")
}

// read returns the URL from where it was given, and warns if others can read it there.
func (f *redisFlags) read(cmd *cobra.Command, log *slog.Logger) (app.Secret, error) {
	url := f.url
	switch {
	case url != "" && f.urlFile != "":
		return "", usagef("--redis-url and --redis-url-file: want one of them")
	case f.urlFile != "":
		data, err := os.ReadFile(f.urlFile)
		if err != nil {
			return "", usagef("--redis-url-file: %w", err)
		}
		if url = strings.TrimSpace(string(data)); url == "" {
			return "", usagef("--redis-url-file: %s is empty", f.urlFile)
		}
	case url == "" && f.conn != redisconn.Options{}:
		return "", usagef("settings of a Redis: want --redis-url or --redis-url-file with them")
	case origin(cmd, "redis-url") == originFlag && strings.Contains(url, "@"):
		log.Warn("--redis-url on the command line can be read by other users; use RATELIMITD_REDIS_URL or --redis-url-file")
	}
	return app.Secret(url), nil
}
