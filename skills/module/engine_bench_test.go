package module

import (
	"testing"
	"time"
)

// BenchmarkEngine runs an empty module in a fully initialized VM in this process. It is a lower
// bound for BenchmarkStart.
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
