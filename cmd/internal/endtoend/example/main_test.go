// Package example tests the examples as the documentation uses them.
package example

import (
	"os"
	"testing"

	"rouse/cmd/internal/endtoend"
)

func TestMain(m *testing.M) { os.Exit(endtoend.Main(m)) }
