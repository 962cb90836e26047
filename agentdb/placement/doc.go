// Package placement has each agent's database be at the node that works for the agent, and come along when another one does.
//
// # Design
//
// The ledger says which node has an agent, under a lease with a number that grows each time that another node gets it. The node that
// has it works on the file in its home, and ships what is committed (internal/storage/replica) to the ledger's database before anybody is told
// that it is done: so who gets the agent next finds all that any run has on record, and a node that was taken for dead and
// comes back ships nothing any more, because its lease is an old one. What it had committed and not shipped, nobody was told of; its
// file is replaced by what was shipped when the agent comes back.
//
// A node that has not got the agent reads a copy of what was shipped last.
//
// Files do not come along: labels and copies for undo know them by their paths. An agent that has files in its folder of the home,
// or whose skills store something, stays where they are (that is on record before the call that made them).
package placement
