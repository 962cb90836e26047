// Package crash tests how runs go on after the process, its model or a program was killed, and what keeps a run from starting.
package crash

import (
	"os"
	"testing"

	"rouse/cmd/internal/endtoend"
)

func TestMain(m *testing.M) { os.Exit(endtoend.Main(m)) }
