// Package crash tests how runs resume after the daemon, a model or a program fails, and which
// problems keep a run from starting.
package crash

import (
	"os"
	"testing"

	"rouse/cmd/internal/endtoend"
)

func TestMain(m *testing.M) { os.Exit(endtoend.Main(m)) }
