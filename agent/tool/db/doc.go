// Package db holds the tools on an agent's own database.
package db
