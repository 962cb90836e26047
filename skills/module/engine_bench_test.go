package module

import (
	"testing"
	"time"
)

// BenchmarkEngine is an engine with all that exists in it and an empty module, from its start to its end, within this process:
// what no confinement could make faster.
func BenchmarkEngine(b *testing.B) {
	for b.Loop() {
		vm, err := newMachineVM(&startRequest{"export function execute() {}", Start{Export: "execute", MemoryMB: 64, Timeout: time.Minute}}, nil)
		if err != nil {
			b.Fatal(err)
		}
		if e := vm.begin(); e.End == nil || e.End.Status != Returned {
			b.Fatal(e.End)
		}
		vm.step.Free()
		if err := vm.vm.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
