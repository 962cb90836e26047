// Package checkout gives each run of an agent a git repository of its own, and brings its branch back.
//
// # Layout
//
//	DIR/mirrors/NAME-HASH.git   one bare mirror per repository of the owner; no agent can write it
//	DIR/runs/RUN/clone.json     the clone of a run, and how far its result has come
//	DIR/runs/RUN/work           the working folder: the agent has all of git there
//	DIR/runs/RUN/quarantine.git the objects that came back, before the owner's repository gets them
//
// A mirror holds only the commits that branches and tags reach. A clone borrows the objects of its mirror
// (objects/info/alternates), so that it is made in the time of a checkout. Nothing links to the objects of the
// owner's repository: an agent could overwrite hard links, and read stashes and unreachable objects there.
//
// # Trust
//
// From the moment an agent has its clone, no git of the host runs in it: its configuration, hooks, attributes and
// alternates name programs and files. [Store.Collect] runs git pack-objects inside the sandbox, which sees the
// clone and the mirror and nothing else, and feeds the pack as data to git index-pack --strict in the quarantine.
//
// Git on the host also reads no configuration of the owner's repository. It works in a view of that repository:
// links to its objects and references beside a configuration with the few settings that say how files are stored.
//
// # Steps
//
// Each step can be repeated after a crash. A clone is made under another name and renamed when it is complete.
// References are changed by compare and swap, after clone.json has recorded the new value.
package checkout
