// Package domain has the words that every part of rouse says the same things with: what asks for a
// run, where it stands, how it ended, what a call does and became of, and what is done with an
// instant of a schedule. They are what stands in the configuration, in the ledger and in JSON, so
// a word that is in use never changes its spelling.
//
// # Design
//
// Each word says, where it is declared, what it means and who moves it next. There are types and
// constants here, and what can be told of a word by itself; whoever decides anything does so in its
// own package.
package domain
