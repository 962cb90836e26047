// Package placement moves each agent's database to the node that runs the agent.
//
// # Design
//
// The ledger records the node of each agent and a lease number. The number grows each time another
// node gets the agent. The agent's node uses the file in its home. It ships every commit
// (internal/storage/replica) to the ledger's database before it acknowledges the write. The next
// node therefore finds all writes of recorded runs. A node that was considered dead and comes
// back cannot ship any more, because its lease is old. Its commits that were not shipped were
// never acknowledged. Its file is replaced by the shipped state when the agent comes back.
//
// Other nodes read a copy of the last shipped state.
//
// Files do not move, because labels and undo copies refer to them by path. An agent stays at its
// node if it has files in its folder of the home, or if its skills store data. The ledger records
// that before the call that creates the files.
package placement
