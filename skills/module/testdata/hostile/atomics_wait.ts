// threw: TypeError
export async function execute() { return Atomics.wait(new Int32Array(new SharedArrayBuffer(8)), 0, 0); }
