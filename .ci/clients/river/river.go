// Package river compares the dispatchers of several processes on one PostgreSQL server with River,
// a queue on PostgreSQL.
package river
