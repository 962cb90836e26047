package main

import (
	"testing"
)

// auditClean proves all that can be proved of the home of a configuration, which may be served.
func auditClean(t testing.TB, config string, more ...string) {
	t.Helper()
	p := rouse(t, append([]string{"audit", "--config", config}, more...)...)
	if err := p.Run(); err != nil {
		t.Errorf("the audit: %v\n%s%s", err, p.stdout.String(), p.stderr.String())
	}
}
