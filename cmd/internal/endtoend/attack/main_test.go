// Package attack tests attacks by models, files and web pages, on each tier of the sandbox.
package attack

import (
	"os"
	"testing"

	"rouse/cmd/internal/endtoend"
)

func TestMain(m *testing.M) { os.Exit(endtoend.Main(m)) }
