// Package riverbench holds what the dispatchers of several processes do on one PostgreSQL against bare River, a queue on
// PostgreSQL that does nothing beside. It is all tests, so that River is in no program.
package riverbench
