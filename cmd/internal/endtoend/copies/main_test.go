// Package copies tests backups, continuous replicas and audits of a home in use.
package copies

import (
	"os"
	"testing"

	"rouse/cmd/internal/endtoend"
)

func TestMain(m *testing.M) { os.Exit(endtoend.Main(m)) }
