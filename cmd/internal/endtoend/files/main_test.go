// Package files tests files that users and programs drop into watched folders.
package files

import (
	"os"
	"testing"

	"rouse/cmd/internal/endtoend"
)

func TestMain(m *testing.M) { os.Exit(endtoend.Main(m)) }
