package redisconn

import (
	"context"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// clientTimeout bounds a command of Client's that its context does not.
const clientTimeout = 2 * time.Second

// Client returns a client for what is no decision, such as settings and notices: the same commands on every topology, in
// database and with credentials as everything else. It retries nothing but what a Cluster sends elsewhere. It does not
// wait for Redis; the caller closes it.
func (r *Redis) Client() redis.UniversalClient {
	if r.kind == Cluster {
		n := r.Node("")
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: r.addrs, Dialer: n.Dialer, Protocol: n.Protocol,
			CredentialsProviderContext: n.CredentialsProviderContext,
			MaxRetries:                 n.MaxRetries, DialerRetries: n.DialerRetries,
			DialTimeout: n.DialTimeout, ReadTimeout: clientTimeout, WriteTimeout: clientTimeout, PoolTimeout: clientTimeout,
			PipelinePoolSize: -1, DisableIdentity: true, ContextTimeoutEnabled: true,
			ClusterStateReloadInterval: time.Second, // its own minute would leave a dead node in use that long
			MaintNotificationsConfig:   n.MaintNotificationsConfig,
		})
	}
	n := r.Node(r.addrs[0])
	n.ReadTimeout, n.WriteTimeout, n.PoolTimeout = clientTimeout, clientTimeout, clientTimeout
	if r.kind == Sentinel {
		n.Addr = r.master + " by sentinel"
		n.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			addr, err := r.Master(ctx)
			if err != nil {
				return nil, err
			}
			return r.dial(ctx, network, addr)
		}
	}
	return redis.NewClient(n)
}
