"""The built-in chat: visitors of a museum ask short questions over one long system prompt. No download, real text.

Every prompt is the museum's handbook (some 750 tokens) and one question, in SmolLM2's chat template. The handbook is
what a prefix cache should compute once. Questions come every `gap` seconds; after the last one the first comes again.

Knows nothing of answers: a model gives them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from cache.tokens import PackedTokens
from experiments.workload.base import Request, Workload
from experiments.workload.checks import check_at_least
from experiments.workload.fingerprint import fingerprint
from experiments.workload.tokenised import GENERATION_PROMPT, Piece, TextEncoder

HANDBOOK = """You answer visitors of the Harbour Museum. \
Be friendly and brief: one or two sentences, plain words, no lists. \
Use only the handbook below. If it does not say, reply that the information desk will help.

Opening hours. The museum is open from ten in the morning until six in the evening, Tuesday to Sunday. On \
Thursdays it stays open until nine. It is closed on Mondays, on the first of January and on the twenty-fifth of \
December. The last visitors are let in forty-five minutes before closing.

Tickets. Adults pay twelve euros, students and seniors eight. Children under fourteen come in free with an \
adult. On the first Sunday of each month entry is free for everybody. A year pass costs thirty euros and also \
opens the lighthouse. Tickets are sold at the front desk and at the machine beside the cloakroom; both take \
cards and cash. Groups of ten or more pay nine euros each and should book a week ahead.

Getting here. The tram lines 2 and 5 stop at Fish Market, three minutes on foot. There are parking places behind \
the old customs house, two euros an hour, and stands for forty bicycles at the gate. The ferry from the north \
bank lands at the museum's own pier every half hour in summer.

Ground floor. The large hall shows the whaling boat Aurora, built in 1887 and raised from the sea floor in 1962; \
visitors may walk on her deck. Room 2 tells how the harbour was dug between 1850 and 1871 and names the \
engineer, Clara Winther, who planned the tidal gates. Room 3 is the rope maker's workshop, where a rope is made \
by hand every day at eleven and at three.

First floor. Room 4 keeps sea charts, the oldest drawn in 1612. Room 5 is about fish: two aquariums hold cod, \
wolffish and lobsters, which are fed at two in the afternoon. Room 6 has the radio station of the steamer Helga; \
children may send a message in Morse code to the café. Room 7 changes: until the end of September it shows \
photographs of storms by Ingrid Solberg.

The lighthouse. It stands at the end of the pier, is thirty-one metres high and was lit in 1904. Its hundred and \
sixty-two steps may be climbed in dry weather only; the ticket is four euros at the foot of the tower. On a \
clear day one can see the islands.

Food. The café on the ground floor serves fish soup, waffles and coffee until half an hour before closing. Own \
food may be eaten in the courtyard and on the pier, not in the rooms. Drinking water is free at the fountain by \
the stairs.

Rules. Photographs are welcome without flash. Dogs must wait outside, except for guide dogs. Large bags go into \
the lockers, which need a one-euro coin that comes back. Please do not touch the charts or the nets. Bicycles, \
scooters and drones stay outside.

Help. A lift by the cloakroom reaches all floors but not the lighthouse. Wheelchairs can be borrowed free of \
charge at the front desk. Guided tours in English begin at noon and last an hour; they cost three euros. Lost \
things are kept at the front desk for thirty days. First aid is in room 1. The shop sells books, model ships and \
postcards and is open as long as the museum."""

QUESTIONS = (
    "When does the museum open on Tuesday?",
    "How much is a ticket for a student?",
    "Is the museum open on Monday?",
    "How tall is the lighthouse?",
    "Which trams stop near the museum?",
    "What is the name of the old whaling boat?",
    "Can I bring my dog?",
    "What can I eat in the café?",
    "When are the fish fed?",
    "Who planned the tidal gates?",
    "How much does a year pass cost?",
    "May I take photographs?",
    "Where can I park my car?",
    "What do children pay?",
    "How old is the oldest sea chart?",
    "Where can I borrow a wheelchair?",
)


class SharedPrompt(Workload):
    """`num_requests` questions, one every `gap` seconds."""

    def __init__(
        self,
        num_requests: int = 16,
        gap: float = 0.5,
        cache_dir: str | None = None,
        limit: int | None = None,
        time_scale: float = 1.0,
        seed: int = 0,
    ) -> None:
        """`cache_dir`: where token ids are kept between runs, see `TextEncoder`. `seed` changes nothing here.

        Raises ValueError for an argument out of range.
        """
        super().__init__(limit, time_scale, seed)
        check_at_least(1, num_requests=num_requests)
        check_at_least(0.0, gap=gap)
        self.num_requests = num_requests
        self.gap = gap
        self.encoder = TextEncoder(cache_dir)

    def requests(self) -> Iterator[Request]:
        pieces: list[Piece] = [("system", HANDBOOK), GENERATION_PROMPT, *(("user", text) for text in QUESTIONS)]
        handbook, invite, *questions = self.encoder.encode(pieces)
        for index in range(self.num_requests):
            question = questions[index % len(questions)]
            yield Request(PackedTokens(handbook + question + invite), index * self.gap, 32, category="visitor")

    def expected_requests(self) -> int:
        return self.num_requests

    def fingerprint(self) -> str:
        words = hashlib.sha256("\n".join((HANDBOOK, *QUESTIONS)).encode()).hexdigest()
        return fingerprint(self, words=words, num_requests=self.num_requests, tokenizer=self.encoder.identity())
