"""The text on which the simulated models' tokenizer is trained. Written for this purpose.

Changing it changes every token id, and with them every simulated answer.
"""

CORPUS = '''\
A language model reads a prompt and writes an answer, one token after another. The prompt is computed in one pass,
and this pass is called prefill. Each further token needs another pass over the weights, and these passes are called
decode. Prefill is bound by arithmetic; decode is bound by the bandwidth of the memory. The time to the first token
is the time that the request waited in the queue and the time of its prefill. The time per output token is the time
between the tokens that follow. A service that holds both below their targets does useful work, and the share of
requests that meet their targets is called goodput.

The keys and values of every token stay in the memory of the accelerator while the request runs. This is the cache
that limits how many requests can run at the same time. The memory is cut into blocks of sixteen tokens, and a table
says which block belongs to which request. When the blocks run out, the engine takes back the blocks of the request
that came last and computes them again when there is room. The work is done twice, and the users see it as a pause
in the middle of a sentence. It is cheaper to refuse a request at the door than to preempt it in the engine.

A queue stores debt and does not make capacity. When requests arrive faster than they are served, the queue grows,
and the answers come after their readers have gone. A short queue with a deadline is better than a long queue
without one. A client that receives a refusal with a named reason and a time to come back can decide what to do. A
client that waits for a minute and then receives an error will try again at once, and the retries make the overload
worse.

What is the capital of France? The capital of France is Paris. Can you write a short summary of this document? Yes,
here is a short summary of the main points. Please explain the difference between the two plans and tell me which of
them is the better choice for a small team. The first plan is simple and costs less; the second plan takes more time
but is easier to change later. I would like to know how many people were there, where they came from, and what they
thought about it. Thank you for your question. There are three reasons for this: the first is cost, the second is
time, and the third is that nobody had tried it before. However, we should also think about what happens when the
network is not available. In the morning she walked along the river to the old market, bought bread, apples and a
newspaper, and went home before the rain began. He looked at the map again and said that the road on the left would
be the shorter one. They worked through the night, because the report had to be ready before the meeting, and when
the sun came up it was done. The house stood at the end of a long street with tall trees on both sides. Every year
in the spring the whole family came together there. Some of the children played in the garden while others were
reading under the windows. After dinner they would tell stories about people that none of them had ever met, about
ships and mountains, about great cities and small mistakes.

Scientists measure the temperature of the ocean with instruments that drift on the surface and dive at regular
intervals. Water stores much more heat than air, so small changes in the ocean mean large changes of energy. The
data are collected by satellites, checked for errors and published for everyone. A model compares what was measured
with what was expected. If the difference is larger than the uncertainty of the measurement, something in the model
is missing. Good engineering works in the same way: write down what you expect, measure it, and look for the reason
when the numbers do not agree. History shows that most failures have more than one cause. A valve was left open, an
alarm was ignored, a new operator was not trained, and each of these alone would have been harmless. A good system
makes the right action the easy one.

Bir dil modeli istemi okur ve yanıtı birer birer üretir. İstem tek geçişte hesaplanır; bu aşamaya ön doldurma denir.
Sonraki her belirteç için ağırlıklar bellekten yeniden okunur. Kuyruk kapasite üretmez, borcu saklar. Kapasite
dolduğunda yeni işi kapıda reddetmek, motorun içinde yarıda kesmekten daha ucuzdur. Kullanıcı ilk yanıtı ne kadar
sürede görür? Bu süre, kuyrukta geçen zaman ile ön doldurma süresinin toplamıdır. Uzun belgeler kısa soruları
bekletmemelidir; bunun için ayrı havuzlar kullanılır. Bugün hava çok güzel, akşam için yağmur bekleniyor. Toplantı
saat üçte başlayacak ve yaklaşık bir saat sürecek. Lütfen bu raporu okuyup görüşlerinizi yarına kadar bize bildirin.
Teşekkür ederiz, iyi çalışmalar dileriz.

def percentile(values: list[float], share: float) -> float:
    """The value below which the given share of the values lies."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("there are no values")
    index = min(len(ordered) - 1, int(share * len(ordered)))
    return ordered[index]

for name, limit in sorted(limits.items()):
    if used[name] + wanted > limit:
        return {"error": {"message": "the limit is reached", "type": "rate_limit", "code": "tokens_per_minute",
            "param": None}}

SELECT tenant, model, sum(prompt_tokens) AS prompt_tokens, sum(output_tokens) AS output_tokens, count(*) AS requests
FROM requests WHERE started_at >= '2026-01-01 00:00:00' GROUP BY tenant, model ORDER BY output_tokens DESC LIMIT 100;

# Release notes
- The scheduler now serves short requests first when their deadline is near (see the section "Deadlines" below).
- The limits of a tenant can be changed without a restart; the change is visible in less than 1 second.
- Fixed: a request that was cancelled in the queue kept its place until 30 seconds had passed.

| name   | value | unit   |
|--------|-------|--------|
| tokens | 1,024 | tokens |
| memory | 80    | GB     |
| speed  | 3.35  | TB/s   |

Numbers: 0 1 2 3 4 5 6 7 8 9 10 11 12 16 20 24 25 32 48 50 60 64 75 90 100 128 200 250 256 300 400 500 512 1000
1024 2000
2048 4096 8192 10000 16384 32768 65536 100000 1000000. Dates: 2024-02-29, 2025-06-15, 2026-12-31. Times: 08:00,
12:30, 23:59.
{"role": "user", "content": "Hello, how are you today?"} {"role": "assistant", "content": "I am well, thank you.
How can I help?"}
'''
