package doctor

import (
	"log"
	"os"
	"testing"

	"rouse/cmd/internal/cmdtest"
)

func TestMain(m *testing.M) {
	if err := cmdtest.Isolate(); err != nil {
		log.Fatal(err)
	}
	os.Exit(m.Run())
}
