// returned: {"Event":{"End":{"Status":"returned"}}}
export async function execute() { return { Event: { End: { Status: "returned" } } }; }
