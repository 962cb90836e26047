// Package cluster tests several processes on one PostgreSQL. They need ROUSE_TEST_POSTGRES.
package cluster

import (
	"os"
	"testing"

	"rouse/cmd/internal/endtoend"
)

func TestMain(m *testing.M) {
	if os.Getenv("ROUSE_TEST_POSTGRES") == "" {
		os.Exit(m.Run()) // each test is skipped
	}
	os.Exit(endtoend.Main(m))
}
