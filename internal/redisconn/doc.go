// Package redisconn hides how Redis is reached: the forms of its URL, one server or what Sentinels or a Cluster say,
// TLS, and credentials that change while the process runs.
//
// Main types: Options, and Redis, which gives connection options for one node, the address of a Sentinel's master, and
// a client for what is no decision. It sends no charge and keeps no connection of its own but to Sentinels.
package redisconn
