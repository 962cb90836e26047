// Package copies tests backups, continuous copies and the audit of a home that is in use.
package copies

import (
	"os"
	"testing"

	"rouse/cmd/internal/endtoend"
)

func TestMain(m *testing.M) { os.Exit(endtoend.Main(m)) }
