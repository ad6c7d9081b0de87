// Starts what every page has: live updates and the keyboard.
import { follow } from "./live.js";
import { listen } from "./keyboard.js";

follow(document.getElementById("live"), document.getElementById("live-problem"));
listen(document);

import { followTail } from "./tail.js";

followTail(document.getElementById("tail"));

import { complete } from "./completion.js";

complete(document.querySelector("textarea[data-tables]"));
